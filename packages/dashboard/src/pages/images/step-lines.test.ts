import assert from 'node:assert/strict';
import { test } from 'node:test';
import { findStepFault, toBuildStep, type StepKind } from './step-lines.ts';

const line = (kind: StepKind, text: string) => ({ id: 1, kind, text });

test('lines of the form become steps', () => {
  assert.deepEqual(toBuildStep(line('RUN', 'echo a=b')), { run: 'echo a=b' });
  assert.deepEqual(toBuildStep(line('ENV', ' OPTIONS=--a=b ')), { env: { OPTIONS: '--a=b' } });
  assert.deepEqual(toBuildStep(line('ENV', 'EMPTY=')), { env: { EMPTY: '' } });
  assert.deepEqual(toBuildStep(line('WORKDIR', ' /srv/app')), { workdir: '/srv/app' });
  assert.deepEqual(toBuildStep(line('USER', '1000:1000')), { user: '1000:1000' });
});

test('an empty line and a variable without a name are faults', () => {
  assert.match(findStepFault(line('RUN', '  ')) ?? '', /empty/u);
  assert.match(findStepFault(line('ENV', 'value')) ?? '', /NAME=value/u);
  assert.match(findStepFault(line('ENV', '1A=value')) ?? '', /NAME=value/u);
  assert.equal(findStepFault(line('ENV', 'A_1=value')), undefined);
});
