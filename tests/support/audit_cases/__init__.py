"""Cases of the audit's verdicts: histories in which each request is a case with its expected judgement."""
