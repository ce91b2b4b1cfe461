"Options of `deepgp_train`: a value of the wrong type, out of range, or against another option"
from ..case import NUMBER, WHOLE, option, run
from ..material import TRAIN, built_coco, folder, train
from ..pictures import write

CACHE = '--cache true --augment false --freeze_backbone true --weights random'.split()
def dataset(name, root): return '--recipe', 'shapes', '--dataset', name, '--root', root

for words, *says in (
    ('--iterations many', '--iterations', WHOLE), ('--iterations 0', 'iterations must be at least 1'),
    ('--batch 2.5', '--batch', WHOLE), ('--batch 0', 'batch must be at least 1'), ('--micro all', '--micro', WHOLE),
    ('--micro 0', 'micro must be at least 1'), ('--shots five', '--shots', WHOLE),
    ('--shots -1', 'shots must be at least 1'), ('--shots 500', '500 shot(s)', 'Use fewer shots'),
    ('--fewest_shots few', '--fewest_shots', WHOLE), ('--fewest_shots 0', 'fewest_shots must lie between 1 and shots'),
    ('--fewest_shots 6', 'fewest_shots must lie between 1 and shots'),
    ('--size big', '--size', WHOLE), ('--size 0', 'size must be at least 1'),
    ('--augment maybe', '--augment', 'say true or false'), ('--recolour 2', '--recolour', 'say true or false'),
    ('--optimizer sgd', "optimizer must be 'adam' or 'adamw'"), ('--lr fast', '--lr', NUMBER),
    ('--lr 0', 'lr must be positive'), ('--lr nan', 'lr must be positive'), ('--lr inf', 'lr must be positive'),
    ('--lr_backbone slow', '--lr_backbone', NUMBER), ('--lr_backbone -1', 'lr_backbone'),
    ('--weight_decay much', '--weight_decay', NUMBER), ('--weight_decay -1', 'weight_decay'),
    ('--decay less', '--decay', NUMBER), ('--decay -1', 'decay'), ('--decay nan', 'decay'),
    ('--decay_at half', '--decay_at', NUMBER), ('--decay_at 50', 'decay_at'),
    ('--foreground_weight heavy', '--foreground_weight', NUMBER),
    ('--foreground_weight 0', 'foreground_weight must be positive'),
    ('--precision fp8', "precision must be 'no', 'bf16' or 'fp16'"), ('--held_out some', '--held_out', WHOLE),
    ('--held_out 99', 'held_out must be below'), ('--held_out -1', 'held_out must be'),
    ('--skip_broken often', '--skip_broken', 'say true or false'), ('--cache perhaps', '--cache', 'say true or false'),
    ('--cache true', 'set cache false'), ('--views some', '--views', WHOLE),
    ('--views 0', 'views must lie between 1 and 4'), ('--views 5', 'views must lie between 1 and 4'),
    ('--views 2', 'set cache true'), ('--cut layer4', 'set cache true'),
    ('--seed lucky', '--seed', WHOLE), ('--seed -1', 'seed'),
    ('--backbone vgg16', "'vgg16'", 'choose one of'), ('--backbone custom', 'custom'), ('--dim wide', '--dim', WHOLE),
    ('--dim 0', 'dim'), ('--dim -5', 'dim'), ('--scales 8,x', '--scales', 'whole numbers separated by commas'),
    ('--scales 7', 'stride must be 8 or 16'), ('--scales 32,16', 'scales'),
    ('--freeze_bn mostly', '--freeze_bn', 'say true or false'),
    ('--freeze_affine x', '--freeze_affine', 'say true or false'),
    ('--freeze_backbone ice', '--freeze_backbone', 'say true or false'),
    ('--thaw layer4', "thaw is for ResNets, and the backbone is 'small'"),
    ('--stride_in_1x1 perhaps', '--stride_in_1x1', 'say true or false'),
    ('--stride_in_1x1 true', "stride_in_1x1 is for ResNets, and the backbone is 'small'"),
    ('--unit_features ice', '--unit_features', 'say true or false'),
    ('--mask_encoder fancy', "mask_encoder must be 'lwl' or 'pool'"), ('--encoding_dim e', '--encoding_dim', WHOLE),
    ('--encoding_dim -1', 'encoding_dim'), ('--encoding_dim 0', 'encoding_dim'),
    ('--learner oracle', "'oracle'", 'choose one of'), ('--learner_options 5', 'learner_options'),
    ('--learner prototype', "prototype learner needs mask_encoder='pool'"),
    ('--kernel cubic', "'cubic'", 'choose one of'), ('--output all', 'output must be one of'),
    ('--noise_var loud', '--noise_var', NUMBER), ('--noise_var -1', 'noise_var must be'),
    ('--length_sq long', '--length_sq', NUMBER), ('--length_sq -1', 'length_sq must be'),
    ('--window open', '--window', WHOLE), ('--window 4', 'window'), ('--window 0', 'window'),
    ('--support_stride s', '--support_stride', WHOLE), ('--support_stride 0', 'support_stride'),
    ('--support_stride -2', 'support_stride'), ('--max_points few', '--max_points', WHOLE),
    ('--max_points 0', 'max_points'), ('--decoder_width w', '--decoder_width', WHOLE),
    ('--decoder_width 0', 'decoder_width'), ('--decoder_width -8', 'decoder_width'),
    ('--final_relu si', '--final_relu', 'say true or false'),
    ('--upsample cubic', "upsample must be 'nearest' or 'bilinear'"),
    ('--recipe secret', "'secret'", 'choose one of paper'), ('--resume now', 'unrecognized arguments: now'),
    ('--show all', 'unrecognized arguments: all'), ('--cpu 2', 'unrecognized arguments: 2'),
    ('--download weights.pth', 'unrecognized arguments: weights.pth'), ('--workers some', '--workers', WHOLE),
    ('--workers -1', 'workers'), ('--checkpoint_every often', '--checkpoint_every', WHOLE),
    ('--checkpoint_every 0', 'checkpoint_every must be at least 1'), ('--picture_every x', '--picture_every', WHOLE),
    ('--picture_every -1', 'picture_every'), ('--cache_limit much', '--cache_limit', NUMBER),
    ('--dataset imagenet', "'imagenet'", 'choose one of shapes'), ('--fold first', '--fold', WHOLE),
    ('--fold 4', 'fold must be from 0 to 3'), ('--fold -1', 'fold must be from 0 to 3'),
    ('--dataset pascal', 'pascal needs root'), ('--dataset folder --root here --data', 'here is not a folder'),
    ('--data side', '--data takes NAME=VALUE', "'side'"), ('--data colour=red', 'shapes', 'colour'),
    ('--data =5', 'shapes'), ('--data side=8', 'side must be at least 16'), ('--data side=wide', 'side'),
    ('--data n_train=many', 'n_train'), ('--data n_train=0', 'n at least 1'), ('--data n_train=2', 'Use fewer shots'),
    ('--data seed=-1', 'seed'), ('--data seed=lucky', 'seed'),
    ('--data difficulty=hard', "difficulty must be 'looks' or 'outline'"), ('--data min_area=large', 'min_area'),
    ('--data min_area=-1', 'min_area'), ('--data min_area=999999', 'lower min_area'),
    ('--data min_images=few', 'min_images'), ('--learning_rate 1', 'unrecognized arguments: --learning_rate')):
    option('deepgp_train', words,
           lambda at, words=words: train(at, *words.replace('--data ', '--data n_train=60 n_val=60 side=48 ').split()),
           *says)
option('deepgp_train', '--weights gone.pth',
       lambda at: train(at, *'--backbone resnet18 --scales 16 --weights gone.pth'.split()), 'no weights file',
       'gone.pth')
for name in ('resnet18', 'timm:resnet18'):
    option('deepgp_train', f'--backbone {name} and no --weights',
           lambda at, name=name: train(at, '--backbone', name, '--scales', '16'), f'{name} has no weights',
           '--weights random')
for words, *says in (
    ('--thaw layer4', 'set freeze_backbone true'), ('--thaw layer9 --freeze_backbone true', "no block 'layer9'"),
    ('--thaw head --freeze_backbone true', "no block 'head'"), ('--stride_in_1x1 true', 'resnet50 and resnet101'),
    ('--cut layer9 and --cache', "no block 'layer9'"), ('--cut layer4.7 and --cache', "no block 'layer4.7'"),
    ('--cut layer4 --thaw layer3.1 and --cache', 'cut layer4 lies behind it')):
    option('deepgp_train', f'{words}, of a resnet18',
           lambda at, words=words: train(at, *'--backbone resnet18 --scales 16 --weights random'.split(),
                                         *words.removesuffix('and --cache').split(),
                                         *(CACHE if 'cache' in words else ())),
           *says)
option('deepgp_train', '--cut layer4 of a small backbone', lambda at: train(at, *CACHE, '--cut', 'layer4'),
       "cut is for ResNets, and the backbone is 'small'")
option('deepgp_train', 'no --out', lambda at: run('deepgp_train', *TRAIN), 'Give --out FOLDER')
option('deepgp_train', '--out, a file', lambda at: train(at, '--out', write(at/'file', b'')), 'file cannot be written',
       'choose another --out')
option('deepgp_train', '--cache_dir, a file',
       lambda at: train(at, *CACHE, '--cache_dir', write(at/'file', b'')),
       'cannot be written', '--cache_dir')
for limit in ('-1', 'nan'):
    option('deepgp_train', f'--cache_limit {limit}',
           lambda at, limit=limit: train(at, *CACHE, '--cache_limit', limit), '--cache_limit')
for words, *says in (
    ('--data folds=1', '4 classes cannot make 1 folds'), ('--data folds=9', '4 classes cannot make 9 folds'),
    ('--data folds=some', 'folds'), ('--data foreground=cat', 'foreground takes numbers'),
    ('--fold 4 --data', 'fold must be from 0 to 3'), ('--data train_list=aug', 'folder', 'train_list')):
    option('deepgp_train', f'--dataset folder {words}',
           lambda at, words=words: train(at, *dataset('folder', folder()), *words.split()),
           *says)
for words, *says in (
    ('split=odd', "'interleaved'", "'contiguous'"), ('masks=thin', "'full' or 'compat'"),
    ('pascal_root=x', 'coco', 'pascal_root')):
    option('deepgp_train', f'--dataset coco --data {words}',
           lambda at, words=words: train(at, *dataset('coco', built_coco()), '--data', words),
           *says)
option('deepgp_train', '--dataset coco2pascal without pascal_root',
       lambda at: train(at, *dataset('coco2pascal', built_coco()), '--data'),
       'coco2pascal needs', 'pascal_root')
