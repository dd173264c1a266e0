"""The networks that hold several members, apart from their methods: these need torch."""
