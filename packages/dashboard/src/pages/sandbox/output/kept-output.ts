/** Output of a command as the page keeps it: the newest part, up to a limit, in pieces of one stream each. */

export type StreamName = 'stdout' | 'stderr';

export interface Piece {
  id: number;
  stream: StreamName;
  text: string;
}

/** Characters that stay. A browser lays out this much text without a pause. */
export const MAX_KEPT = 256 * 1024;
/** A piece ends here, so that old text can be dropped piece by piece, and only the last one is drawn again. */
const MAX_PIECE = 16 * 1024;

// Colours and cursor movements: this view is no terminal.
// oxlint-disable-next-line no-control-regex -- terminal sequences begin with such a character
const SEQUENCE = /\u001B(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001B]*(?:\u0007|\u001B\\)|[ -/]*[0-~])/gu;
// oxlint-disable-next-line no-control-regex -- the same, without its end
const BEGUN = /\u001B(?:\[[0-?]{0,64}[ -/]{0,8}|\][^\u0007\u001B]{0,256}\u001B?|[ -/]{0,8})?$/u;

export class KeptOutput {
  #pieces: readonly Piece[] = [];
  #kept = 0;
  #dropped = 0;
  #nextId = 0;
  /** The begin of a sequence whose rest has not come. */
  readonly #begun = new Map<StreamName, string>();

  get pieces(): readonly Piece[] {
    return this.#pieces;
  }

  /** Characters at the beginning that are kept no more. */
  get droppedCount(): number {
    return this.#dropped;
  }

  add(stream: StreamName, received: string): void {
    const all = (this.#begun.get(stream) ?? '') + received;
    const begun = BEGUN.exec(all)?.[0] ?? '';
    this.#begun.set(stream, begun);
    const text = all
      .slice(0, all.length - begun.length)
      .replaceAll(SEQUENCE, '')
      .replaceAll('\r\n', '\n');
    if (text !== '') this.#append(stream, text);
  }

  #append(stream: StreamName, text: string): void {
    const pieces = [...this.#pieces];
    let rest = text;
    const last = pieces.at(-1);
    if (last?.stream === stream && last.text.length < MAX_PIECE) {
      const room = MAX_PIECE - last.text.length;
      pieces[pieces.length - 1] = { ...last, text: last.text + rest.slice(0, room) };
      rest = rest.slice(room);
    }
    for (; rest !== ''; rest = rest.slice(MAX_PIECE))
      pieces.push({ id: (this.#nextId += 1), stream, text: rest.slice(0, MAX_PIECE) });
    this.#kept += text.length;
    let first = 0;
    for (; this.#kept > MAX_KEPT && first < pieces.length - 1; first += 1) {
      const { length } = pieces[first]?.text ?? '';
      this.#kept -= length;
      this.#dropped += length;
    }
    this.#pieces = pieces.slice(first);
  }
}
