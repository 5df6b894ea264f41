import type { StreamConnection } from './stream-connection.ts';

/** Far below the 1 MiB of a message: JSON may make six bytes of a character. */
const MAX_TEXT_LENGTH = 65_536;

/** Standard input of a {@link SpawnedCommand}. It is text: bytes that are not UTF-8 cannot go this way. */
export class CommandStdin {
  readonly #connection: Pick<StreamConnection<unknown, unknown>, 'send' | 'hasEnded'>;
  readonly #decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  #hasEnded = false;
  #sent: Promise<void> = Promise.resolve();

  /** Made by `sandbox.spawn()`. */
  constructor(connection: Pick<StreamConnection<unknown, unknown>, 'send' | 'hasEnded'>) {
    this.#connection = connection;
  }

  /**
   * Writes text, or bytes that are UTF-8; a character may be split over two calls. Rejects with `TypeError` for other
   * bytes: upload those as a file and let the command read that. Resolves when there is room for more: wait for it.
   *
   * @example
   * await command.stdin.write('SELECT 1;\n');
   * for await (const chunk of createReadStream('dump.sql')) await command.stdin.write(chunk);
   */
  async write(data: string | Uint8Array): Promise<void> {
    if (this.#hasEnded) throw new TypeError('stdin: it has been ended');
    await this.#send(splitText(this.#decode(data)).map((text) => ({ type: 'stdin', data: text })));
  }

  /**
   * Ends the input: the command reads an end of file. Nothing happens the second time, or once the command has ended.
   *
   * @example
   * await command.stdin.end();
   */
  async end(): Promise<void> {
    if (this.#hasEnded || this.#connection.hasEnded) return;
    this.#decode('');
    this.#hasEnded = true;
    await this.#send([{ type: 'stdin_eof' }]);
  }

  async #send(messages: object[]): Promise<void> {
    this.#sent = this.#sendAfter(this.#sent, messages);
    await this.#sent;
  }

  /** Once a message could not go, none that follows it may: the input would have a hole. */
  async #sendAfter(before: Promise<void>, messages: object[]): Promise<void> {
    await before;
    for (const message of messages) await this.#connection.send(JSON.stringify(message));
  }

  /** Text comes between characters only: with it, the bytes before it must be whole. */
  #decode(data: string | Uint8Array): string {
    try {
      if (typeof data === 'string') return this.#decoder.decode() + data;
      return this.#decoder.decode(data, { stream: true });
    } catch (cause) {
      throw new TypeError('stdin: these bytes are not UTF-8; upload them as a file, and read that', {
        cause,
      });
    }
  }
}

/** Pieces of what a message may hold, cut between characters. */
export function splitText(text: string): string[] {
  const pieces: string[] = [];
  for (let start = 0; start < text.length;) {
    let end = Math.min(start + MAX_TEXT_LENGTH, text.length);
    const last = text.charCodeAt(end - 1);
    // The first half of a pair would become U+FFFD.
    if (end < text.length && last >= 0xd800 && last <= 0xdbff) end -= 1;
    pieces.push(text.slice(start, end));
    start = end;
  }
  return pieces;
}
