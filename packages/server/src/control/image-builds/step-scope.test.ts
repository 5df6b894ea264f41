import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AppError } from '@coppice/contract';
import { parseDockerfile } from './dockerfile.ts';
import { listStepKeys } from './step-keys.ts';
import { StepScope } from './step-scope.ts';

const BASE = { env: { PATH: '/bin', HOME: '/root' }, user: '', workdir: '/srv' };

/** Applies all steps of a Dockerfile to the scope of an image. */
function apply(
  lines: string[],
  { env = BASE.env, args = {} }: { env?: Record<string, string>; args?: Record<string, string> } = {},
): StepScope {
  const { steps, escape } = parseDockerfile(['FROM a:1', ...lines].join('\n'), args);
  const scope = new StepScope({ ...BASE, env }, escape);
  for (const step of steps) scope.take(scope.expand(step));
  return scope;
}

function failed(lines: string[], pattern: RegExp, env?: Record<string, string>): void {
  assert.throws(
    () => apply(lines, env === undefined ? {} : { env }),
    (error) => {
      assert(error instanceof AppError && error.code === 'build_failed', String(error));
      assert.match(error.message, pattern);
      return true;
    },
  );
}

test('a variable that doubles itself is refused before it is large', () => {
  const begun = performance.now();
  const doubling = Array.from({ length: 100 }, () => 'ENV A=$A$A');
  failed(['ENV A=0123456789abcdef', ...doubling], /line 14: a word has more than 32768 bytes once/u);
  failed(
    ['ARG A=0123456789abcdef', ...doubling.map((line) => line.replace('ENV', 'ARG'))],
    /line 14: a word has more than 32768 bytes/u,
  );
  failed(
    [`ENV A=${'x'.repeat(16_000)}`, `ENV B=${'$A'.repeat(16_000)}`],
    /line 3: a word has more than 32768 bytes/u,
  );
  assert.ok(performance.now() - begun < 2000);
});

test('all variables and arguments together are bounded, and what the image has counts', () => {
  const large = (count: number): string[] =>
    Array.from({ length: count }, (_, index) => `ENV V${index}=${'x'.repeat(32_000)}`);
  assert.equal(Object.keys(apply(large(8)).variables).length, 8);
  failed(
    large(9),
    /line 10: env: the variables of the image, the steps and the arguments have more than 262144 bytes/u,
  );
  failed([...large(7), ...large(2).map((line) => line.replace('ENV V', 'ARG A'))], /line 10: env/u);
  const many = Array.from(
    { length: 17 },
    (_, step) => `ENV ${Array.from({ length: 62 }, (__, index) => `V${step}_${index}=`).join(' ')}`,
  );
  failed(many, /line 18: env: .* more than 1024 variables/u);
  const huge = { HUGE: 'x'.repeat(300_000) };
  assert.equal(
    apply(['USER app', 'RUN true'], { env: huge }).config.user,
    'app',
    'the image alone is not refused',
  );
  failed(['ENV A=b'], /more than 300004 bytes/u, huge);
});

test('a variable of the image wins over an argument of the same name', () => {
  const { variables } = apply(['ARG HOME=/other', 'ARG MINE=$HOME/x', 'ENV SET=1', 'ARG SET=2']);
  assert.deepEqual(variables, { MINE: '/root/x', SET: '1' });
});

test('a name such as constructor is that of no variable', () => {
  assert.deepEqual(apply(['ENV A=[$constructor${toString:-x}${hasOwnProperty}]']).variables, { A: '[x]' });
});

test('what a step becomes once its variables have values is checked, too', () => {
  failed(['ARG MODE=u+x', 'COPY --chmod=$MODE a /a'], /line 3: --chmod: must be three or four octal digits/u);
  failed(['WORKDIR $NONE'], /line 2: WORKDIR: must not be empty/u);
  failed(
    Array.from({ length: 50 }, () => `WORKDIR ${'d'.repeat(200)}`),
    /line 22: workdir: the whole path/u,
  );
  failed([`ARG A=${'a'.repeat(5000)}`, 'COPY $A /a'], /line 3: the source: must be at most 4095 bytes/u);
  failed(['ARG A=???', 'COPY $A$A$A /a'], /line 3: the source: must have at most 8 \?/u);
  failed(['ARG A=***', 'COPY $A$A$A /a'], /line 3: the source: must have at most 8 \*/u);
  const scope = apply(['ARG MODE=755', 'ENV A=x']);
  const copy = { from_path: '$A', to: '/a', mode: '$MODE' };
  assert.deepEqual(scope.expand({ line: 9, copy }).copy, { from_path: 'x', to: '/a', mode: '755' });
});

test('a target of several sources is a directory once its variables have values', () => {
  for (const to of ['.', '..', './', '"/x/"', '/x/.']) apply([`COPY a b ${to}`]);
  apply(['ARG D=/x/', 'COPY a b $D', 'COPY a b ${D}y/']);
  failed(['ARG D=/x', 'COPY a b $D'], /line 3: several sources need a target that ends with a slash/u);
  apply(['ARG D=/x', 'COPY a $D']);
  assert.throws(() => apply(['COPY a b "/x"']), /line 2: several sources need/u);
});

test('proxies are variables of commands, but not of words or of the image', () => {
  const scope = new StepScope(BASE, '\\', { HTTP_PROXY: 'p', HOME: '/p', no_proxy: 'a' });
  scope.take({ arg: { name: 'no_proxy', value: 'b', raw: undefined } });
  assert.deepEqual(scope.variables, { HTTP_PROXY: 'p', no_proxy: 'b' });
  assert.deepEqual(scope.config, BASE);
  assert.equal(scope.expand({ workdir: '/w$HTTP_PROXY' }).workdir, '/w');
});

test('the keys of steps depend on proxies', async () => {
  const keysOf = (proxies: Record<string, string>): Promise<string[]> =>
    listStepKeys({
      rights: { organizationId: 'o', teamId: 't', egress: { network: undefined, grants: [] } },
      base: { digest: 'd', config: BASE },
      steps: [{ run: 'true' }],
      escape: '\\',
      proxies,
      copies: undefined,
      signal: new AbortController().signal,
    });
  assert.notDeepEqual(await keysOf({ HTTP_PROXY: 'a' }), await keysOf({}));
  assert.deepEqual(await keysOf({ HTTP_PROXY: 'a' }), await keysOf({ HTTP_PROXY: 'a' }));
});
