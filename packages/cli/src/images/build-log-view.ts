import type { Writable } from 'node:stream';
import type { ImageBuildEvent } from '../../../sdk/src/index.ts';
import { write } from '../output/output.ts';
import { toVisible, toVisibleOutput } from '../output/visible-text.ts';

/** Writes the log of a build for a person. It controls no terminal, whatever the Dockerfile and its programs print. */
export class BuildLogView {
  readonly #stream: Writable;
  #isLineStart = true;

  constructor(stream: Writable) {
    this.#stream = stream;
  }

  /** Resolves when there is room for more. */
  async show(event: ImageBuildEvent): Promise<void> {
    if (event.type === 'step')
      await this.#line(`[${event.step + 1}] ${event.cached ? 'cached: ' : ''}${event.text}`);
    else if (event.type === 'note') await this.#note(event.text);
    else if (event.type === 'end') await this.end();
    else if (event.data !== '') {
      await write(this.#stream, toVisibleOutput(event.data));
      this.#isLineStart = event.data.endsWith('\n');
    }
  }

  /** Ends the last line, so that another text can follow. */
  async end(): Promise<void> {
    if (!this.#isLineStart) await write(this.#stream, '\n');
    this.#isLineStart = true;
  }

  /** Each line begins with the mark, so that none can pass as another event. */
  async #note(text: string): Promise<void> {
    const [first = '', ...others] = text.trimEnd().split(/\r?\n/u);
    await this.#line(`--> ${first}`);
    for (const line of others) await this.#line(`-->   ${line}`);
  }

  async #line(text: string): Promise<void> {
    await this.end();
    await write(this.#stream, `${toVisible(text)}\n`);
  }
}
