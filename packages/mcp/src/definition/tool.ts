import type { ToolAnnotations } from '@modelcontextprotocol/server';
import type { z } from 'zod';
import type { Coppice } from '../../../sdk/src/index.ts';

/** The part of the client that tools use. */
export type SandboxClient = Pick<Coppice, 'sandboxes'>;

/** The input of a tool besides its arguments. */
export interface ToolCall {
  client: SandboxClient;
  /** Aborts when the caller cancels the call, or leaves. */
  signal: AbortSignal;
  /** Reports how many bytes a call has produced so far. Sends nothing unless the caller asked for progress. */
  progress: (bytes: number) => void;
  /** Notes sandboxes that the call created, for the clean-up at the end of a session. */
  created: (ids: readonly string[]) => void;
}

/** A tool: what a model sees of it, and what it does. */
export interface Tool<Input extends z.ZodObject, Output extends z.ZodObject> {
  name: string;
  title: string;
  description: string;
  annotations: ToolAnnotations;
  input: Input;
  output: Output;
  /** Rejects with any error: {@link describeFailure} turns it into a text for the model. */
  run: (args: z.output<Input>, call: ToolCall) => Promise<z.input<Output>>;
}

/** Infers the types of a tool from its schemas. */
export function defineTool<Input extends z.ZodObject, Output extends z.ZodObject>(
  tool: Tool<Input, Output>,
): Tool<Input, Output> {
  return tool;
}
