/**
 * A model whose turns are written in a file. It reacts to results where the file says so: a turn with `when` is taken only
 * if that text is in the results of the turn before; otherwise the next turn that fits is taken.
 */
import { readFile } from 'node:fs/promises';
import type { Model, ToolCall, ToolResult, Turn } from './model.ts';

interface ScriptedTurn {
  when?: string;
  text: string;
  calls?: Omit<ToolCall, 'id'>[];
}

export class ScriptedModel implements Model {
  readonly #turns: readonly ScriptedTurn[];
  #next = 0;

  constructor(turns: readonly ScriptedTurn[]) {
    this.#turns = turns;
  }

  static async read(file: URL): Promise<ScriptedModel> {
    return new ScriptedModel(JSON.parse(await readFile(file, 'utf8')) as ScriptedTurn[]);
  }

  /** Rejects if no later turn fits: it never claims what the results do not show. */
  async next(input: string | readonly ToolResult[]): Promise<Turn> {
    const seen = typeof input === 'string' ? input : input.map(({ output }) => output).join('\n');
    const index = this.#turns.findIndex(
      ({ when }, index) => index >= this.#next && (when === undefined || seen.includes(when)),
    );
    const turn = this.#turns[index];
    if (turn === undefined) throw new Error(`the script has no turn that answers this:\n${seen}`);
    this.#next = index + 1;
    const calls = (turn.calls ?? []).map(({ name, input }, number) => ({
      id: `call-${index}-${number}`,
      name,
      input,
    }));
    return { text: turn.text, calls };
  }
}
