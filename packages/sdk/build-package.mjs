/**
 * `npm pack` runs this: it builds `dist` with the client as modules, as it is compiled, and the mock as one module. The
 * mock contains the schemas of the contract and zod, which are not published or not ours; the client contains neither.
 */
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { rolldown } from 'rolldown';

const PACKAGE = fileURLToPath(new URL('.', import.meta.url));
const REPOSITORY = resolve(PACKAGE, '../..');
const TYPES_OF_MOCK = ['index', 'mock-service', 'mock-types'];
const COMPILE_TIMEOUT_MS = 4 * 60_000;

/** @param {string} [dist]  where the package is built; it is emptied first */
export async function buildPackage(dist = join(PACKAGE, 'dist')) {
  rmSync(dist, { recursive: true, force: true });
  compile('tsconfig.json', dist);
  const types = mkdtempSync(join(tmpdir(), 'coppice-mock-types-'));
  try {
    compile('tsconfig.mock.json', types);
    mkdirSync(join(dist, 'mock'));
    for (const name of TYPES_OF_MOCK)
      cpSync(join(types, 'sdk/src/mock', `${name}.d.ts`), join(dist, 'mock', `${name}.d.ts`));
  } finally {
    rmSync(types, { recursive: true, force: true });
  }
  await bundleMock(dist);
}

/**
 * @param {string} project
 * @param {string} directory
 */
function compile(project, directory) {
  const compiler = join(REPOSITORY, 'node_modules/.bin/tsc');
  // This Node.js, not the one that PATH names: the compiler needs a current one.
  execFileSync(process.execPath, [compiler, '-p', join(PACKAGE, project), '--outDir', directory], {
    stdio: 'inherit',
    timeout: COMPILE_TIMEOUT_MS,
  });
}

/**
 * The mock loads the errors of the client, so that `instanceof CoppiceError` holds.
 * @param {string} dist
 */
async function bundleMock(dist) {
  const errors = join(PACKAGE, 'src/transport/errors.ts');
  const bundle = await rolldown({
    input: join(PACKAGE, 'src/mock/index.ts'),
    platform: 'neutral',
    logLevel: 'warn',
    external: [errors],
  });
  try {
    await bundle.write({
      file: join(dist, 'mock/index.js'),
      format: 'esm',
      codeSplitting: false,
      paths: { [errors]: '../transport/errors.js' },
      banner: `/*! Contains zod, which is MIT-licensed:\n${readLicence('zod')} */`,
    });
  } finally {
    await bundle.close();
  }
}

/** @param {string} name */
function readLicence(name) {
  return readFileSync(join(REPOSITORY, 'node_modules', name, 'LICENSE'), 'utf8').replaceAll('*/', '* /');
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await buildPackage();
