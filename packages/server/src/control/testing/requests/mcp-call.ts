/** Single requests to `/mcp`, as a test needs them that chooses their ids, headers and ends. */
import assert from 'node:assert/strict';
import type { ControlHarness } from '../control-harness.ts';

export const MCP_HEADERS = { accept: 'application/json, text/event-stream' };

const REVISION = '2026-07-28';

export interface ToolCallOptions {
  /** Revision of the protocol. Default: of 2025. */
  revision?: '2025' | '2026';
  id?: string | number;
  session?: string;
  apiKey?: string;
  signal?: AbortSignal;
  meta?: Record<string, unknown>;
}

export interface ToolOutcome {
  isError: boolean;
  text: string;
  value: Record<string, unknown>;
}

/** Resolves when the head of the answer has come. */
export function sendToolCall(
  harness: ControlHarness,
  name: string,
  args: Record<string, unknown>,
  { revision = '2025', id = 1, session, apiKey, signal, meta }: ToolCallOptions = {},
): Promise<Response> {
  const isNew = revision === '2026';
  const envelope = {
    'io.modelcontextprotocol/protocolVersion': REVISION,
    'io.modelcontextprotocol/clientInfo': { name: 'test', version: '1' },
    'io.modelcontextprotocol/clientCapabilities': {},
  };
  const _meta = { ...(isNew ? envelope : {}), ...meta };
  return harness.fetch('POST', '/mcp', {
    body: { jsonrpc: '2.0', id, method: 'tools/call', params: { name, arguments: args, _meta } },
    headers: {
      ...MCP_HEADERS,
      ...(isNew ? { 'mcp-protocol-version': REVISION, 'mcp-method': 'tools/call', 'mcp-name': name } : {}),
      ...(session === undefined ? {} : { 'mcp-session-id': session }),
    },
    ...(apiKey === undefined ? {} : { apiKey }),
    ...(signal === undefined ? {} : { signal }),
  });
}

/** Reads the result from the stream that answers a call. */
export async function readOutcome(response: Response): Promise<ToolOutcome> {
  const body = await response.text();
  assert.equal(response.status, 200, body);
  const messages = [...body.matchAll(/^data: (.*)$/gmu)].map(
    ([, data = '']) => JSON.parse(data) as { result?: unknown },
  );
  const result = messages.at(-1)?.result as {
    isError?: boolean;
    content: { text: string }[];
    structuredContent?: Record<string, unknown>;
  };
  assert.ok(result !== undefined, body);
  const { isError = false, content, structuredContent = {} } = result;
  return { isError, text: content[0]?.text ?? '', value: structuredContent };
}

/** Calls a tool to its end. */
export async function callTool(
  harness: ControlHarness,
  name: string,
  args: Record<string, unknown>,
  options: ToolCallOptions = {},
): Promise<ToolOutcome> {
  return readOutcome(await sendToolCall(harness, name, args, options));
}
