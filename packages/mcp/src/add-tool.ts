import type { CallToolResult, McpServer, ServerContext, ToolCallback } from '@modelcontextprotocol/server';
import type { z } from 'zod';
import { describeFailure } from './definition/describe-failure.ts';
import { buildProgress } from './progress.ts';
import type { DefinedTool, ToolCall } from './definition/tool.ts';

/** The part of a call that all calls of a server share. */
export type ToolSession = Pick<ToolCall, 'client' | 'creations'>;

/**
 * Adds a tool to a server. A failure is a result with `isError`, not an error of the protocol: hosts show only the former
 * to the model, which can then take the next step.
 */
export function addTool<Input extends z.ZodObject, Output extends z.ZodObject>(
  server: McpServer,
  session: ToolSession,
  tool: DefinedTool<Input, Output>,
): void {
  const { name, title, description, annotations, inputSchema, outputSchema } = tool;
  const config = { title, description, annotations, inputSchema, outputSchema };
  const call = async (args: z.output<Input>, context: ServerContext): Promise<CallToolResult> => {
    const { signal } = context.mcpReq;
    try {
      return toResult(await tool.run(args, { ...session, signal, progress: buildProgress(context) }));
    } catch (error) {
      return { isError: true, content: [{ type: 'text', text: describeFailure(error) }] };
    }
  };
  // The type of a callback depends on the schema, which is generic here.
  server.registerTool(name, config, call as unknown as ToolCallback<typeof inputSchema>);
}

/** Older clients read only the text, so it holds the same. */
function toResult(value: Record<string, unknown>): CallToolResult {
  return { structuredContent: value, content: [{ type: 'text', text: JSON.stringify(value) }] };
}
