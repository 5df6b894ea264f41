import { setImmediate } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

const LOOKS = 5;

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

/**
 * Returns the bytes of memory in use, on the heap and in buffers: the least of several measurements, because garbage is freed
 * in the background after its collection.
 */
export async function measureMemory(): Promise<number> {
  let least = Infinity;
  for (let look = 0; look < LOOKS; look += 1) {
    collectGarbage();
    await setImmediate();
    const { arrayBuffers, heapUsed } = process.memoryUsage();
    least = Math.min(least, arrayBuffers + heapUsed);
  }
  return least;
}
