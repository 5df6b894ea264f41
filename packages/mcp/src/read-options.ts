import { readFileSync, statSync } from 'node:fs';
import { parseArgs } from 'node:util';

/** Options of the command. */
export interface Options {
  /** Undefined: the client reads SANDBOX_API_KEY. */
  apiKey: string | undefined;
  /** Destroys the sandboxes that the session created when it ends. */
  destroysOnExit: boolean;
  /** Prints this text and does nothing else. */
  show: 'help' | 'version' | undefined;
}

const MAX_KEY_FILE_BYTES = 4096;

/**
 * Throws `TypeError` without a key, for unknown arguments, and for a key file that cannot be used. The message never has the
 * key.
 */
export function readOptions(args: string[]): Options {
  const { values } = parseArgs({
    args,
    options: {
      'key-file': { type: 'string' },
      'destroy-on-exit': { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h', default: false },
      version: { type: 'boolean', default: false },
    },
  });
  const file = values['key-file'];
  const show = values.help ? 'help' : values.version ? 'version' : undefined;
  const apiKey = file === undefined ? undefined : readKeyFile(file);
  if (show === undefined && apiKey === undefined && !process.env['SANDBOX_API_KEY'])
    throw new TypeError(
      'no API key: set SANDBOX_API_KEY in the configuration of the MCP client, or pass --key-file',
    );
  return { apiKey, destroysOnExit: values['destroy-on-exit'], show };
}

function readKeyFile(file: string): string {
  try {
    const { size, mode } = statSync(file);
    if (size > MAX_KEY_FILE_BYTES) throw new TypeError('it is larger than a key');
    if (process.platform !== 'win32' && (mode & 0o077) !== 0)
      throw new TypeError(`other users may access it; run: chmod 600 ${file}`);
    const key = readFileSync(file, 'utf8').trim();
    if (key === '') throw new TypeError('it is empty');
    return key;
  } catch (error) {
    throw new TypeError(`--key-file ${file}: ${error instanceof Error ? error.message : String(error)}`, {
      cause: error,
    });
  }
}
