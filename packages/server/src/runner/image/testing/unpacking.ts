/** Tests unpack layers with the real launcher, and with the real script, built from these sources. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { pino } from 'pino';
import { buildScript } from '../../../../build-program.mjs';
import { LAUNCHER } from '../../../config/testing/launcher.ts';
import { Jail } from '../../confinement/jail.ts';
import type { UnpackPlacesOptions } from '../unpacking/unpack-places.ts';

const SOURCE = fileURLToPath(new URL('../unpacking/unpack.ts', import.meta.url));
/** Beyond the user ids of all installations that tests make. Test files that run at the same time have different ones. */
const FIRST_UID = 10_000_000;

export const IS_ROOT = process.getuid?.() === 0;

let made: Promise<UnpackPlacesOptions> | undefined;

export function makeUnpacking(): Promise<UnpackPlacesOptions> {
  made ??= build();
  return made;
}

async function build(): Promise<UnpackPlacesOptions> {
  const directory = mkdtempSync(join(tmpdir(), 'coppice-unpacking-'));
  process.once('exit', () => rmSync(directory, { recursive: true }));
  const script = join(directory, 'unpack.mjs');
  await buildScript(SOURCE, script);
  const first = FIRST_UID + 2 * process.pid;
  return {
    jail: await Jail.open({ launcherPath: LAUNCHER, uid: first, log: pino({ level: 'silent' }) }),
    node: process.execPath,
    script,
    tar2sqfs: '/usr/bin/tar2sqfs',
    uids: IS_ROOT ? [first, first + 1] : [],
    enclose: async () => ({ cgroups: [], release: async () => undefined }),
    isInMemory: false,
    log: pino({ level: 'silent' }),
  };
}
