"""Models of Hugging Face with rows of data for its Trainer. They are made inside functions, because PyTorch may be missing."""


def bert(torch):
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(vocab_size=8000, hidden_size=512, num_hidden_layers=6, num_attention_heads=8, intermediate_size=2048)
    return BertForSequenceClassification(config), lambda number: {"input_ids": torch.randint(0, 8000, (256,)), "labels": torch.tensor(number % 2)}


def gpt2(torch):
    from transformers import GPT2Config, GPT2LMHeadModel

    def row(_):
        words = torch.randint(0, 10000, (320,))
        return {"input_ids": words, "labels": words}

    return GPT2LMHeadModel(GPT2Config(vocab_size=10000, n_positions=512, n_embd=576, n_layer=6, n_head=9)), row


def whisper(torch):
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    ends = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "begin_suppress_tokens": None}
    config = WhisperConfig(vocab_size=8000, max_source_positions=300, max_target_positions=128, **ends)

    def row(_):
        return {"input_features": torch.randn(80, 600), "labels": torch.randint(3, 8000, (96,))}

    return WhisperForConditionalGeneration(config), row


def albert(torch):
    from transformers import AlbertConfig, AlbertForMaskedLM

    config = AlbertConfig(vocab_size=8000, embedding_size=128, hidden_size=512, num_hidden_layers=8, num_attention_heads=8, intermediate_size=2048)

    def row(_):
        words = torch.randint(5, 8000, (192,))
        return {"input_ids": words, "labels": words}

    return AlbertForMaskedLM(config), row


def distilbert(torch):
    """Names the kind of each word."""
    from transformers import DistilBertConfig, DistilBertForTokenClassification

    config = DistilBertConfig(vocab_size=9000, dim=480, n_layers=5, n_heads=8, hidden_dim=1600, max_position_embeddings=256, num_labels=17)

    def row(_):
        return {"input_ids": torch.randint(5, 9000, (224,)), "labels": torch.randint(0, 17, (224,))}

    return DistilBertForTokenClassification(config), row


def electra(torch):
    """Finds the words of a text that were replaced."""
    from transformers import ElectraConfig, ElectraForPreTraining

    sizes = {"embedding_size": 128, "hidden_size": 384, "num_hidden_layers": 7, "num_attention_heads": 6, "intermediate_size": 1536}

    def row(_):
        return {"input_ids": torch.randint(5, 10000, (208,)), "labels": torch.randint(0, 2, (208,))}

    return ElectraForPreTraining(ElectraConfig(vocab_size=10000, **sizes)), row


def roberta(torch):
    """Guesses the hidden words of a text."""
    from transformers import RobertaConfig, RobertaForMaskedLM

    sizes = {"hidden_size": 320, "num_hidden_layers": 6, "num_attention_heads": 5, "intermediate_size": 1280, "max_position_embeddings": 260}

    def row(_):
        return {"input_ids": torch.randint(5, 8000, (184,)), "labels": torch.randint(5, 8000, (184,))}

    return RobertaForMaskedLM(RobertaConfig(vocab_size=8000, **sizes)), row
