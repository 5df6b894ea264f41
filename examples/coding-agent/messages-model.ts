/** A model behind the Messages API of Anthropic. The key stays in this process: no sandbox sees it. */
import { setTimeout as sleep } from 'node:timers/promises';
import { TOOLS } from './tools.ts';
import type { Model, Tool, ToolCall, ToolResult, Turn } from './model.ts';

const SYSTEM =
  'You repair a project with the given tools. Run its tests before and after your changes. ' +
  'When they pass, or when you cannot get further, answer in one sentence without a tool.';
const MAX_TOKENS = 8000;
const TIMEOUT_MS = 5 * 60_000;
const MAX_ATTEMPTS = 5;

export interface MessagesOptions {
  apiKey: string;
  /** Name of a model of the account. */
  model: string;
  baseUrl?: string | undefined;
}

type Block =
  | { type: 'text'; text: string }
  | { type: 'tool_use'; id: string; name: string; input: Record<string, unknown> }
  | { type: 'tool_result'; tool_use_id: string; content: string; is_error: boolean };

interface Message {
  role: 'user' | 'assistant';
  content: string | Block[];
}

interface Answer {
  content: Block[];
  stop_reason: string;
}

export class MessagesModel implements Model {
  readonly #options: MessagesOptions;
  readonly #messages: Message[] = [];

  constructor(options: MessagesOptions) {
    this.#options = options;
  }

  async next(input: string | readonly ToolResult[], signal: AbortSignal): Promise<Turn> {
    const content = typeof input === 'string' ? input : input.map(toBlock);
    this.#messages.push({ role: 'user', content });
    const answer = await this.#send(signal);
    this.#messages.push({ role: 'assistant', content: answer });
    const text = answer.map((block) => (block.type === 'text' ? block.text : '')).join('');
    return { text, calls: answer.filter((block) => block.type === 'tool_use') satisfies ToolCall[] };
  }

  /** Sends the conversation. Tries again, with a growing pause, when the API asks for it. */
  async #send(signal: AbortSignal): Promise<Block[]> {
    const { apiKey, model, baseUrl = 'https://api.anthropic.com' } = this.#options;
    const body = {
      model,
      max_tokens: MAX_TOKENS,
      system: SYSTEM,
      tools: TOOLS.map(toSchema),
      messages: this.#messages,
    };
    for (let attempt = 1; ; attempt += 1) {
      const response = await fetch(`${baseUrl}/v1/messages`, {
        method: 'POST',
        headers: {
          'x-api-key': apiKey,
          'anthropic-version': '2023-06-01',
          'content-type': 'application/json',
        },
        body: JSON.stringify(body),
        signal: AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]),
      });
      if (response.ok) return readAnswer((await response.json()) as Answer);
      const problem = `the model's API answered ${response.status}: ${(await response.text()).slice(0, 500)}`;
      const isPassing = response.status === 429 || response.status >= 500;
      if (!isPassing || attempt === MAX_ATTEMPTS) throw new Error(problem);
      await sleep(1000 * 2 ** attempt, undefined, { signal });
    }
  }
}

function readAnswer({ content, stop_reason: reason }: Answer): Block[] {
  if (reason === 'max_tokens') throw new Error(`the model wrote more than ${MAX_TOKENS} tokens in one turn`);
  return content;
}

function toBlock({ callId, output, isError }: ToolResult): Block {
  return { type: 'tool_result', tool_use_id: callId, content: output, is_error: isError };
}

function toSchema({ name, description, parameters }: Tool): Record<string, unknown> {
  const properties = Object.fromEntries(
    Object.entries(parameters).map(([key, text]) => [key, { type: 'string', description: text }]),
  );
  return {
    name,
    description,
    input_schema: { type: 'object', properties, required: Object.keys(parameters) },
  };
}
