"""The two laws, estimated from outcomes of runs: the stability boundary and the collapse clock."""
