"""What a relay will gain: `relaygen.forecast`, fed from options and files."""

from ._plan import Asked, Inputs, Plan, plan_dict, planned

__all__ = ["Asked", "Inputs", "Plan", "plan_dict", "planned"]
