"Configurations"
from deepgp_fss.model import DeepGPNet, ModelConfig
from deepgp_fss.training import RunConfig, make_config

from ..case import refused


def as_dict(**change): return make_config('shapes').to_dict() | change
for name, do, *says in (
    ('an unknown recipe', lambda at: make_config('secret'), "'secret'", 'choose one of paper'),
    ('an unknown setting', lambda at: make_config('paper', colour='red'), "'colour'", 'choose among'),
    ('data without a name', lambda at: make_config('paper', dict(root='x')), 'no data set None', 'choose one of'),
    ('a model setting that does not exist', lambda at: ModelConfig.from_dict(dict(colour='red')), 'colour',
     'Known are'),
    ('a setting of a recipe that does not exist', lambda at: RunConfig.from_dict(as_dict(recipe=dict(colour='red'))),
     'colour'),
    ('a configuration without a model',
     lambda at: RunConfig.from_dict({k: v for k, v in as_dict().items() if k != 'model'}), 'model'),
    ('a configuration with a part too many', lambda at: RunConfig.from_dict(as_dict(colour='red')), 'colour'),
    ('an encoder that does not fit its scales', lambda at: DeepGPNet(ModelConfig('small', 16, (32, 16))), 'scales')):
    refused('configuration', name, do, *says)
