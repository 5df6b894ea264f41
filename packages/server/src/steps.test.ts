import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { DISK_STEPS } from './control/disks/steps.ts';
import { RECORD_STEPS } from './control/sandbox/record/steps.ts';
import { STEPS } from './runner/vm/steps.ts';

test('the code enters every step of the tables', () => {
  const root = fileURLToPath(new URL('.', import.meta.url));
  const code = readdirSync(root, { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.ts') && !path.endsWith('.test.ts'))
    .map((path) => readFileSync(join(root, path), 'utf8'))
    .join('\n');
  const entered = new Set(
    [...code.matchAll(/enter(?:Record|Disk)?Step\('([^']+)'\)/gu)].map(([, step]) => step),
  );
  assert.deepEqual(
    entered,
    new Set([...Object.keys(STEPS), ...Object.keys(RECORD_STEPS), ...Object.keys(DISK_STEPS)]),
  );
});
