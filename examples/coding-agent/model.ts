/** The interface of a model for the agent. */

/** A call of one of the tools. */
export interface ToolCall {
  id: string;
  name: string;
  /** As the model wrote it: the tool must check it. */
  input: Readonly<Record<string, unknown>>;
}

export interface ToolResult {
  callId: string;
  output: string;
  isError: boolean;
}

/** Without calls it is the last one. */
export interface Turn {
  text: string;
  calls: readonly ToolCall[];
}

export interface Tool {
  name: string;
  description: string;
  /** Names of the required texts, with their descriptions. */
  parameters: Readonly<Record<string, string>>;
}

/** A conversation with a model, which remembers its turns. */
export interface Model {
  /** Returns its turn in answer to the task, or to the results of all calls of its last turn. */
  next: (input: string | readonly ToolResult[], signal: AbortSignal) => Promise<Turn>;
}
