/** Ports on which programs in a sandbox listen, as its kernel lists them in `/proc/net/tcp` and `/proc/net/tcp6`. */
import { CoppiceError, type Sandbox } from '../../../../../sdk/src/index.ts';

export interface ListeningPort {
  port: number;
  /** Only programs in the sandbox, and the service, reach a port that listens on loopback. */
  isLoopback: boolean;
}

const FILES = ['/proc/net/tcp', '/proc/net/tcp6'];
const MAX_BYTES = 2 ** 20;
const MAX_PORTS = 50;
/** `0A` is the state LISTEN. */
const LINE = /^\s*\d+: ([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4}) [0-9A-F]+:[0-9A-F]{4} 0A /gmu;
const LOOPBACK = /^(?:[0-9A-F]{6}7F|0{24}01000000|0{16}F{4}0{4}[0-9A-F]{6}7F)$/u;

/** Reads which ports have listeners. Root in the sandbox can make it report anything. */
export async function readListeningPorts(
  sandbox: Sandbox,
  signal: AbortSignal,
): Promise<readonly ListeningPort[]> {
  const tables = await Promise.all(FILES.map((file) => readTable(sandbox, file, signal)));
  return parseListeningPorts(tables.join('\n'));
}

/** A kernel without IPv6 has no second table. */
async function readTable(sandbox: Sandbox, file: string, signal: AbortSignal): Promise<string> {
  try {
    return await sandbox.download(file, { maxBytes: MAX_BYTES, signal });
  } catch (error) {
    if (error instanceof CoppiceError && error.code === 'file_not_found') return '';
    throw error;
  }
}

/** Returns each port once, lowest first. */
export function parseListeningPorts(tables: string): readonly ListeningPort[] {
  const found = new Map<number, ListeningPort>();
  for (const [, address = '', digits = ''] of tables.matchAll(LINE)) {
    const port = Number.parseInt(digits, 16);
    const isLoopback = LOOPBACK.test(address) && found.get(port)?.isLoopback !== false;
    if (port > 0) found.set(port, { port, isLoopback });
  }
  return Array.from(found.values())
    .sort((a, b) => a.port - b.port)
    .slice(0, MAX_PORTS);
}
