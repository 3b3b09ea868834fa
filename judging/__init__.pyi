from .classifier import ClassifierJudge as ClassifierJudge
