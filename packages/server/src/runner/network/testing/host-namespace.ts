/** A network namespace that acts as the host, so that a test changes nothing on the real one. */
import koffi from 'koffi';
import { execFileSync } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';

const CLONE_NEWNET = 0x40_00_00_00;

const libc = koffi.load('libc.so.6');
const unshare = libc.func('int unshare(int flags)') as (flags: number) => number;
const setns = libc.func('int setns(int fd, int type)') as (fd: number, type: number) => number;

/**
 * Moves the main thread, and with it every socket and child process made from now on, into a new namespace, until
 * disposed. Needs root.
 */
export function enterHostNamespace(): Disposable {
  const original = openSync('/proc/thread-self/ns/net', 'r');
  if (unshare(CLONE_NEWNET) !== 0) throw new Error(`a network namespace needs root (error ${koffi.errno()})`);
  execFileSync('ip', ['link', 'set', 'lo', 'up']);
  return {
    [Symbol.dispose]: () => {
      // A test process that stays in the namespace would make the results of later tests wrong.
      if (setns(original, CLONE_NEWNET) !== 0) process.abort();
      closeSync(original);
    },
  };
}
