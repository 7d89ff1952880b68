"""Answers made to hang or kill a grader, with the score each must get from `math_reward`."""

from __future__ import annotations


def hostile_answers() -> list[tuple[str, str]]:
    """Twenty (name, response) pairs; none of them is a right answer to anything."""
    box = "Hence $\\boxed{%s}$."
    bodies = {
        "tower": "9^{9^{9^{9}}}",
        "tower_of_ten": "10^{10^{10^{10}}}",
        "power": "2^{10^{10}}",
        "big_base": "(10^{7})^{10^{7}}",
        "factorial": "(10^8)!",
        "nested_factorial": "((9!)!)!",
        "factorial_tower": "(3^{3^{3^3}})!",
        "long_sum": "\\sum_{n=1}^{1000000000} \\sin(n^2)",
        "long_product": "\\prod_{n=1}^{100000000} (1+n)",
        "integral": "\\int_0^1 x^{x^{x^{x^{x}}}} \\sin(e^{x}) dx",
        "binomial": "\\binom{10^{9}}{5 \\cdot 10^{8}}",
        "digits": "7" * 100_000,
        "fractions": "\\frac{1}{" * 300 + "2" + "}" * 300,
        "roots": "\\sqrt{2+" * 300 + "2" + "}" * 300,
        "parentheses": "(" * 3_000 + "1" + ")" * 3_000,
        "braces": "{" * 5_000 + "1" + "}" * 5_000,
        "polynomial": "(x+y+z+w)^{400} - 1",
        "modular": "3^{3^{3^{10}}} \\mod 7",
    }
    answers = [(name, box % body) for name, body in bodies.items()]
    answers.append(("long_text", "therefore " * 10_000 + "nothing"))
    answers.append(("many_boxes", "".join(f"$\\boxed{{x_{i}+{i}}}$ " for i in range(5_000))))
    return answers
