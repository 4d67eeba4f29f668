"""Cases of the audit's verdicts: histories in which each request is one case, with the judgement that it must get."""
