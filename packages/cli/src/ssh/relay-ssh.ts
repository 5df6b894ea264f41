import type { SshConnection } from '../../../sdk/src/index.ts';
import { Ended, withSignals } from '../attach/signals.ts';
import { write } from '../output/output.ts';

/** Connects standard input and output with an SSH connection, until the server ends it or the client leaves. */
export async function relaySsh(connection: SshConnection): Promise<void> {
  let reason: Ended | undefined;
  let hasLeft = false;
  const end = (ended: Ended): void => {
    reason ??= ended;
    void connection.close();
  };
  const pump = async (): Promise<void> => {
    for await (const bytes of process.stdin) await connection.write(bytes as Uint8Array);
    hasLeft = true;
    await connection.close();
  };
  try {
    await withSignals({ onInterrupt: () => end(new Ended('SIGINT')), onEnd: end }, async () => {
      // A lost connection is reported by the loop over its output.
      pump().catch(() => undefined);
      for await (const bytes of connection) await write(process.stdout, bytes);
    });
  } catch (error) {
    if (reason !== undefined) throw reason;
    if (!hasLeft) throw error;
  } finally {
    process.stdin.destroy();
    await connection.close();
  }
}
