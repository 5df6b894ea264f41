/**
 * One terminal: xterm on the page, and the connection to a shell of the sandbox. It outlives the connection, so that the text
 * stays readable and another shell can be opened below it.
 *
 *     connecting ──► open ──► ended ──► connecting …
 *          └──────────────────►┘
 */
import { signal } from '@preact/signals';
import { FitAddon } from '@xterm/addon-fit';
import { Terminal as Screen } from '@xterm/xterm';
import type { Sandbox, Terminal } from '../../../../../sdk/src/index.ts';
import { showFailure } from '../../../ui/toasts.tsx';
import { forgetTerminal, keepTerminal } from './open-terminals.ts';
import { createTerminalDocument } from './terminal-document.ts';
import { cleanTitle, type EndCause } from './terminal-text.ts';
import { followTheme } from './terminal-theme.ts';
import { WriteQueue } from './write-queue.ts';

export type SessionState = { kind: 'connecting' } | { kind: 'open' } | { kind: 'ended'; cause: EndCause };

const SCROLLBACK_LINES = 5000;
const MAX_SIDE = 1000;
/** Limit of the input that is kept until the shell runs. */
const MAX_EARLY_LENGTH = 64 * 1024;
/** Undoes what a program may have set and not reset: mouse reports, bracketed paste, margins, colours. Hides the cursor. */
const CALM = '\u001B[?1000;1002;1003;1004;1006;2004l\u001B[!p\u001B[0m\u001B[?25l';
const LEAVE_OTHER_SCREEN = '\u001B[?1049l';
const SHOW_CURSOR = '\u001B[?25h';

export const sessions = signal<readonly TerminalSession[]>([]);
let lastNumber = 0;

/** Opens a terminal, which stays in `sessions` until it is closed. */
export function openSession(sandbox: Sandbox, onEnd: () => void): TerminalSession {
  lastNumber = sessions.value.length === 0 ? 1 : lastNumber + 1;
  const session = new TerminalSession(sandbox, lastNumber, onEnd);
  sessions.value = [...sessions.value, session];
  keepTerminal(session.sandboxId, session);
  return session;
}

export class TerminalSession {
  readonly sandboxId: string;
  readonly number: number;
  readonly state = signal<SessionState>({ kind: 'connecting' });
  readonly title = signal('');
  /** Contains the terminal. It can be moved in the document. */
  readonly host: HTMLElement;
  readonly #sandbox: Sandbox;
  readonly #onEnd: () => void;
  readonly #screen: Screen;
  readonly #fit = new FitAddon();
  readonly #closing = new AbortController();
  readonly #ends: (() => void)[] = [];
  #terminal: Terminal | undefined;
  /** Typed while it connects. */
  #early: (string | Uint8Array)[] = [];
  #earlyLength = 0;

  constructor(sandbox: Sandbox, number: number, onEnd: () => void) {
    this.sandboxId = sandbox.id;
    this.number = number;
    this.title.value = cleanTitle('', number);
    this.#sandbox = sandbox;
    this.#onEnd = onEnd;
    this.host = document.createElement('div');
    this.host.className = 'terminal-host';
    const own = createTerminalDocument(document);
    this.#ends.push(own.dispose);
    this.#screen = new Screen({
      documentOverride: own.document,
      scrollback: SCROLLBACK_LINES,
      fontFamily: getComputedStyle(document.documentElement).getPropertyValue('--mono').trim() || 'monospace',
      fontSize: 13,
      lineHeight: 1.2,
      cursorBlink: true,
      macOptionIsMeta: true,
      disableStdin: true,
      logLevel: 'off',
    });
    this.#screen.loadAddon(this.#fit);
    this.#ends.push(followTheme((colours) => (this.#screen.options.theme = colours)));
    this.#listen();
  }

  /** Shows the terminal in an element, in place of what is there, and connects it the first time. */
  show(parent: HTMLElement): void {
    parent.replaceChildren(this.host);
    if (this.#screen.element === undefined) {
      this.#screen.open(this.host);
      this.#observeSize();
      this.fit();
      void this.connect();
    } else this.fit();
    this.focus();
  }

  focus(): void {
    this.#screen.focus();
  }

  /** Sends a key as if it had been typed. */
  press(text: string): void {
    // Programs such as editors may ask for another form of the arrow keys.
    const isOther = this.#screen.modes.applicationCursorKeysMode;
    this.#screen.input(isOther ? text.replace('\u001B[', '\u001BO') : text);
    this.focus();
  }

  /** Fits the rows and columns into the element. */
  fit(): void {
    if (this.host.isConnected && this.host.clientWidth > 0) this.#fit.fit();
  }

  /** Opens a shell below what is there. */
  async connect(): Promise<void> {
    this.state.value = { kind: 'connecting' };
    this.#early = [];
    this.#earlyLength = 0;
    this.#screen.options.disableStdin = false;
    const cause = await this.#run();
    if (this.#closing.signal.aborted) return;
    this.#terminal = undefined;
    this.#screen.options.disableStdin = true;
    const isOther = this.#screen.buffer.active.type === 'alternate';
    this.#screen.write(`${isOther ? LEAVE_OTHER_SCREEN : ''}${CALM}\r\n`);
    this.state.value = { kind: 'ended', cause };
    this.#onEnd();
  }

  /** Ends the shell and removes the terminal. */
  close(): void {
    this.#closing.abort();
    for (const end of this.#ends) end();
    this.#screen.dispose();
    this.host.remove();
    sessions.value = sessions.value.filter((session) => session !== this);
    forgetTerminal(this.sandboxId, this);
  }

  async #run(): Promise<EndCause> {
    const { cols, rows } = this.#screen;
    const queue = new WriteQueue((bytes, done) => this.#screen.write(bytes, done));
    try {
      const terminal = await this.#sandbox.terminal({
        cols: Math.min(cols, MAX_SIDE),
        rows: Math.min(rows, MAX_SIDE),
        signal: this.#closing.signal,
      });
      this.#terminal = terminal;
      this.#screen.write(SHOW_CURSOR);
      this.state.value = { kind: 'open' };
      // The size may have changed while it connected.
      this.#sendSize();
      for (const data of this.#early.splice(0)) this.#send(data);
      const output = terminal[Symbol.asyncIterator]();
      let next = await output.next();
      for (; next.done !== true; next = await output.next()) await queue.write(next.value);
      return { exitCode: next.value.exitCode };
    } catch (error) {
      return { error };
    }
  }

  #listen(): void {
    const screen = this.#screen;
    screen.onData((text) => this.#send(text));
    screen.onBinary((text) => this.#send(Uint8Array.from(text, (character) => character.charCodeAt(0))));
    screen.onResize(() => this.#sendSize());
    screen.onTitleChange((title) => (this.title.value = cleanTitle(title, this.number)));
    screen.attachCustomKeyEventHandler((event) => this.#takeKey(event));
  }

  #send(data: string | Uint8Array): void {
    if (this.#terminal === undefined) {
      if (this.state.value.kind === 'connecting') this.#keepEarly(data);
      return;
    }
    this.#terminal.write(data).catch((error: unknown) => {
      // Input of a terminal that ends is lost; the end itself is shown.
      console.debug(error);
    });
  }

  /** After too much nothing is kept: a part of what was typed could be another command. */
  #keepEarly(data: string | Uint8Array): void {
    this.#earlyLength += data.length;
    if (this.#earlyLength <= MAX_EARLY_LENGTH) this.#early.push(data);
    else this.#early = [];
  }

  #sendSize(): void {
    const { cols, rows } = this.#screen;
    this.#terminal?.resize(Math.min(cols, MAX_SIDE), Math.min(rows, MAX_SIDE));
  }

  #observeSize(): void {
    let frame = 0;
    const observer = new ResizeObserver(() => {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(() => this.fit());
    });
    observer.observe(this.host);
    this.#ends.push(() => {
      cancelAnimationFrame(frame);
      observer.disconnect();
    });
  }

  /** Keys that belong to the page and not to the shell. Returns false for those. */
  #takeKey(event: KeyboardEvent): boolean {
    if (event.type !== 'keydown' || !event.ctrlKey) return true;
    if (event.key === 'F6') {
      // The terminal takes Tab, so the keyboard needs another way out.
      event.preventDefault();
      document.querySelector<HTMLElement>('.terminal-tabs [aria-pressed="true"]')?.focus();
      return false;
    }
    const isCopy = event.key === 'Insert' || (event.shiftKey && event.key.toLowerCase() === 'c');
    if (isCopy && this.#screen.hasSelection()) {
      event.preventDefault();
      void this.#copy();
      return false;
    }
    // The browser pastes.
    return !(event.shiftKey && event.key.toLowerCase() === 'v');
  }

  async #copy(): Promise<void> {
    try {
      await navigator.clipboard.writeText(this.#screen.getSelection());
    } catch (error) {
      console.debug(error);
      showFailure(new Error('The browser does not allow copying here. Use its own menu instead.'));
    }
  }
}
