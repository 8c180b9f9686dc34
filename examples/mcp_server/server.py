"""An MCP server with two tools. `agent.py` starts it."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("orders")


@server.tool()
def find_order(order_id: int) -> str:
    """Find an order."""
    return f"Order {order_id}: delivered, 30 euros."


@server.tool()
def refund(order_id: int) -> str:
    """Refund an order."""
    return f"Order {order_id} is refunded."


if __name__ == "__main__":
    server.run()
