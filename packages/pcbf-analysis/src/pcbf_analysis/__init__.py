"""Tables, figures, theory checks, the comparison with the paper and the report, all made from run records."""
