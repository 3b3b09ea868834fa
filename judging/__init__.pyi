from .classifier import ClassifierJudge as ClassifierJudge
from .judge_by_name import open_judge as open_judge
from .local import LocalJudge as LocalJudge
