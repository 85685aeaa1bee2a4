EXPLAINED: dict = {}
