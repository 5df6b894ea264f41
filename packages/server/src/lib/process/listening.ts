import { once } from 'node:events';
import type { Server } from 'node:net';

/** Waits until a server listens. The error names the setting with its address: see start-error.ts. */
export async function listening(server: Server, setting: string): Promise<void> {
  try {
    await once(server, 'listening');
  } catch (error) {
    throw error instanceof Error ? Object.assign(error, { setting }) : error;
  }
}
