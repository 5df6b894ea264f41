import { Failure, UsageError } from '../output/failure.ts';

const MAX_KEY_BYTES = 4096;
/** Return, line feed, Ctrl-D. */
const ENTER: ReadonlySet<string> = new Set(['\r', '\n', '\u0004']);
const CONTROL_C = '\u0003';
/** Delete and backspace. */
const ERASE: ReadonlySet<string> = new Set(['\u007f', '\b']);
const INTERRUPTED = 130;

/** Asks for the key on the terminal, without showing it. Throws UsageError if standard input is not a terminal. */
export async function askKey(prompt: string): Promise<string> {
  const { stdin } = process;
  if (!stdin.isTTY)
    throw new UsageError(
      'standard input is not a terminal: pass the key with --key-stdin, as in "coppice login --key-stdin < file"',
    );
  // Before the prompt: the terminal would show a key that is pasted at once.
  stdin.setRawMode(true);
  const restore = (): void => void stdin.setRawMode(false);
  process.once('exit', restore);
  process.stderr.write(prompt);
  try {
    return requireKey(await readLine(stdin.setEncoding('utf8')));
  } finally {
    process.off('exit', restore);
    restore();
    stdin.pause();
    process.stderr.write('\n');
  }
}

/** Reads the key from standard input, which holds nothing else. */
export async function readKey(input: AsyncIterable<Uint8Array>): Promise<string> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of input) {
    size += chunk.length;
    if (size > MAX_KEY_BYTES) throw new Failure('--key-stdin: standard input holds more than a key');
    chunks.push(chunk);
  }
  return requireKey(Buffer.concat(chunks).toString('utf8'));
}

async function readLine(input: AsyncIterable<string | Uint8Array>): Promise<string> {
  let line = '';
  for await (const text of input) {
    for (const character of String(text)) {
      if (ENTER.has(character)) return line;
      if (character === CONTROL_C) process.exit(INTERRUPTED);
      line = ERASE.has(character) ? line.slice(0, -1) : line + character;
      if (line.length > MAX_KEY_BYTES) throw new Failure('the key is too long: copy it again');
    }
  }
  return line;
}

function requireKey(text: string): string {
  const key = text.trim();
  if (key !== '') return key;
  throw new Failure('the key is empty: copy it from the place where it was shown');
}
