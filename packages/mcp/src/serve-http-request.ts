import { createMcpHandler } from '@modelcontextprotocol/server';
import type { ToolSession } from './add-tool.ts';
import { buildMcpServer } from './mcp-server.ts';

/** One HTTP request of the protocol, authenticated and with its body parsed. */
export interface HttpExchange {
  /** Its signal aborts when the client leaves, which cancels the call. */
  request: Request;
  body: unknown;
  session: ToolSession;
  version: string;
  onError: (error: Error) => void;
}

/**
 * Answers a request of Streamable HTTP. There are no sessions: each request is served by a server of its own, for the
 * revision of 2026 as for those of 2025, and nothing is kept when it ends.
 */
export async function serveHttpRequest(exchange: HttpExchange): Promise<Response> {
  const { request, body, session, version, onError } = exchange;
  // With the default, clients and proxies would wait for the head of an answer until a silent command has ended.
  const options = { onerror: onError, responseMode: 'sse' } as const;
  const handler = createMcpHandler(() => buildMcpServer(session, version), options);
  return handler.fetch(request, { parsedBody: body });
}
