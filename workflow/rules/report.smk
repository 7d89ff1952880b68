# Tables, figures and pages.
