import type { ToolAnnotations } from '@modelcontextprotocol/server';
import type { z } from 'zod';
import type { Coppice, Sandbox } from '../../../sdk/src/index.ts';
import { cacheJsonSchema, type CachedSchema } from './cached-schema.ts';

/** The part of the client that tools use. */
type SandboxClient = Pick<Coppice, 'sandboxes'>;

/** Receives the sandboxes that calls create. */
export interface Creations {
  /** Runs a create, with what follows it: the end of the session waits for it. */
  track: <T>(create: () => Promise<T>) => Promise<T>;
  /** Notes sandboxes of which the caller learns. */
  add: (sandboxes: readonly Sandbox[]) => void;
  /** Destroys sandboxes whose caller has cancelled the call or left. Never rejects: a failure is reported. */
  discard: (sandboxes: readonly Sandbox[]) => Promise<void>;
}

/** The input of a tool besides its arguments. */
export interface ToolCall {
  client: SandboxClient;
  /** Aborts when the caller cancels the call, or leaves. */
  signal: AbortSignal;
  /** Reports how many bytes a call has produced so far. Sends nothing unless the caller asked for progress. */
  progress: (bytes: number) => void;
  creations: Creations;
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

/** A tool with its schemas as the server package takes them. */
export interface DefinedTool<Input extends z.ZodObject, Output extends z.ZodObject> extends Tool<
  Input,
  Output
> {
  inputSchema: CachedSchema<Input>;
  outputSchema: CachedSchema<Output>;
}

/** Infers the types of a tool from its schemas. */
export function defineTool<Input extends z.ZodObject, Output extends z.ZodObject>(
  tool: Tool<Input, Output>,
): DefinedTool<Input, Output> {
  return { ...tool, inputSchema: cacheJsonSchema(tool.input), outputSchema: cacheJsonSchema(tool.output) };
}
