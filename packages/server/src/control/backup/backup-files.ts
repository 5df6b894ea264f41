/** The directory of a backup: the database, and the key that its secrets are sealed with. */
import {
  closeSync,
  createReadStream,
  createWriteStream,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readFileSync,
  readdirSync,
  rmSync,
  rmdirSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGunzip, createGzip } from 'node:zlib';
import { BackupError } from './backup-format.ts';
import { invariant } from '../../lib/invariant.ts';

const DATABASE_FILE = 'database.gz';
const KEY_FILE = 'master.key';

/**
 * A new backup directory. Create it while the process still has the rights to write there: later writes go to open
 * files. Throws {@link BackupError} if the directory exists already. One that a command left when it failed, which could
 * not remove it any more, is used again.
 */
export class NewBackup implements Disposable {
  readonly #directory: number;
  readonly #key: number;
  /** Undefined once a stream owns it and will close it. */
  #database: number | undefined;

  constructor(path: string) {
    removeIncomplete(path);
    try {
      mkdirSync(path, { mode: 0o700 });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
      throw new BackupError(`${path} is there already: name a new directory`, error);
    }
    this.#directory = openSync(path, 'r');
    this.#database = openSync(join(path, DATABASE_FILE), 'wx', 0o600);
    this.#key = openSync(join(path, KEY_FILE), 'wx', 0o600);
  }

  /** Resolves with the bytes written, once they are on the disk. */
  async writeDatabase(lines: AsyncIterable<string>): Promise<number> {
    const file = createWriteStream('', { fd: take(this.#database), flush: true });
    this.#database = undefined;
    await pipeline(Readable.from(lines), createGzip(), file);
    return file.bytesWritten;
  }

  writeKey(key: Uint8Array): void {
    writeFileSync(this.#key, key);
    fsyncSync(this.#key);
    fsyncSync(this.#directory);
  }

  [Symbol.dispose](): void {
    for (const descriptor of [this.#key, this.#database, this.#directory])
      if (descriptor !== undefined) closeSync(descriptor);
  }
}

/** A backup directory to read from. Open it while the process still has the rights to read there. */
export class KeptBackup implements Disposable {
  #database: number | undefined;
  /** The master key; undefined if it is stored elsewhere. */
  readonly key: Buffer | undefined;

  constructor(path: string) {
    const file = join(path, DATABASE_FILE);
    if (!existsSync(file)) throw new BackupError(`${path} is no backup: there is no ${DATABASE_FILE} in it`);
    if (isIncomplete(path))
      throw new BackupError(
        `${path} is no complete backup: the command that began it failed; take another one`,
      );
    this.#database = openSync(file, 'r');
    const keyFile = join(path, KEY_FILE);
    this.key = existsSync(keyFile) ? readFileSync(keyFile) : undefined;
  }

  async *readDatabase(): AsyncGenerator<string> {
    const text = createGunzip();
    const read = pipeline(createReadStream('', { fd: take(this.#database) }), text);
    this.#database = undefined;
    // The reader of the lines gets its failure.
    read.catch(() => undefined);
    try {
      yield* splitLines(text);
    } catch (error) {
      const isDamaged = /^(?:Z_|ERR_STREAM_PREMATURE)/u.test(String((error as NodeJS.ErrnoException).code));
      throw isDamaged
        ? new BackupError('the backup is damaged or breaks off; take another one', error)
        : error;
    }
  }

  [Symbol.dispose](): void {
    if (this.#database !== undefined) closeSync(this.#database);
  }
}

/** Whether a command made the directory and failed before it had written the key, which comes last. */
function isIncomplete(path: string): boolean {
  return statSync(join(path, KEY_FILE), { throwIfNoEntry: false })?.size === 0;
}

/** Removes what a command that failed has left. A directory that holds anything else stays. */
function removeIncomplete(path: string): void {
  if (!isIncomplete(path)) return;
  for (const name of [DATABASE_FILE, KEY_FILE]) rmSync(join(path, name), { force: true });
  if (readdirSync(path).length === 0) rmdirSync(path);
}

function take(descriptor: number | undefined): number {
  invariant(descriptor !== undefined, 'a backup is written and read once');
  return descriptor;
}

/** Splits only at \n: a row may contain other characters that Unicode treats as line ends. */
async function* splitLines(bytes: AsyncIterable<Buffer>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = '';
  for await (const chunk of bytes) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n');
    rest = lines.pop() ?? '';
    yield* lines;
  }
  if (rest !== '') yield rest;
}
