from .judges.rules import RuleJudge as RuleJudge
from .rates import RATES as RATES
from .rates import joint_rates as joint_rates
from .right_action import right_action_score as right_action_score
from .score_file import score_file as score_file
