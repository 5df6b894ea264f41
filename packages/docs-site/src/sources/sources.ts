/** The Markdown files that become pages, and their places in the navigation. */
import { existsSync, readdirSync } from 'node:fs';
import { basename, join, posix } from 'node:path';

export const SECTIONS = ['guides', 'api', 'reference', 'internals'] as const;
export type Section = (typeof SECTIONS)[number];

export const SECTION_TITLES: Readonly<Record<Section, string>> = {
  guides: 'Guides',
  api: 'API',
  reference: 'Reference',
  internals: 'Internals',
};

/** A Markdown file that becomes a page. */
export interface Source {
  /** Path in the repository. */
  file: string;
  /** Path of the page below `/docs/`. */
  path: string;
  section: Section;
  /** Heading in the navigation. */
  group: string;
  /** Title in the navigation; undefined: that of the page. */
  shortTitle: string | undefined;
}

interface Group {
  section: Section;
  title: string;
  /** Paths in the repository, in the order of the navigation. */
  files: readonly string[];
}

const GROUPS: readonly Group[] = [
  {
    section: 'guides',
    title: 'Start',
    files: [
      'README.md',
      'docs/guides/install.md',
      'docs/guides/dashboard.md',
      'docs/guides/typescript-client.md',
      'docs/guides/python.md',
      'docs/guides/command-line.md',
      'docs/guides/mcp.md',
      'docs/guides/migrate-from-e2b.md',
      'docs/guides/migrate-from-vercel.md',
    ],
  },
  {
    section: 'guides',
    title: 'Sandboxes',
    files: [
      'docs/guides/sandbox-settings.md',
      'docs/guides/commands.md',
      'docs/guides/files.md',
      'docs/guides/streams-and-ports.md',
      'docs/guides/fork-and-hibernate.md',
      'docs/guides/disks.md',
      'docs/guides/docker.md',
      'docs/guides/network-and-credentials.md',
      'docs/guides/events.md',
    ],
  },
  {
    section: 'guides',
    title: 'Uses',
    files: ['docs/guides/agents.md', 'docs/guides/ci.md', 'docs/guides/evaluate-with-forks.md'],
  },
  {
    section: 'guides',
    title: 'Examples',
    files: [
      'examples/README.md',
      'examples/coding-agent/README.md',
      'examples/best-of-n/README.md',
      'examples/web-preview/README.md',
      'examples/notebook/README.md',
    ],
  },
  {
    section: 'guides',
    title: 'Accounts',
    files: ['docs/guides/accounts.md', 'docs/guides/money-and-limits.md'],
  },
  {
    section: 'guides',
    title: 'Operating',
    files: [
      'docs/guides/operate.md',
      'docs/operations.md',
      'docs/guides/metrics.md',
      'docs/guides/traces.md',
      'docs/guides/backup.md',
      'docs/guides/object-store.md',
      'docs/guides/several-machines.md',
      'docs/guides/deploy-several-machines.md',
      'docs/guides/tls-and-proxies.md',
    ],
  },
  {
    section: 'reference',
    title: 'Using it',
    files: [
      'packages/sdk/README.md',
      'docs/limits.md',
      'docs/behaviour.md',
      'docs/reference/errors.md',
      'docs/reference/audit.md',
    ],
  },
  {
    section: 'reference',
    title: 'Running it',
    files: [
      'docs/reference/configuration.md',
      'docs/security.md',
      'docs/performance.md',
      'docs/scale.md',
      'CHANGELOG.md',
    ],
  },
  {
    section: 'internals',
    title: 'Design',
    files: [
      'ARCHITECTURE.md',
      'CONTRIBUTING.md',
      'docs/reference/agent-protocol.md',
      'docs/reference/runner-protocol.md',
      'docs/lab.md',
    ],
  },
  { section: 'internals', title: 'Decisions', files: ['docs/decisions/README.md'] },
];

/** Folders whose other files are appended: a page that no group names must not be missing. */
const FOLDERS: readonly { folder: string; section: Section; group: string }[] = [
  { folder: 'docs/decisions', section: 'internals', group: 'Decisions' },
  { folder: 'docs/guides', section: 'guides', group: 'More' },
  { folder: 'docs/reference', section: 'reference', group: 'More' },
  { folder: 'docs', section: 'reference', group: 'More' },
];

/** Titles in the navigation, where they are shorter than those of the pages. */
const SHORT_TITLES: Readonly<Record<string, string>> = {
  'README.md': 'Quick start',
  'packages/sdk/README.md': 'TypeScript client',
  'docs/guides/install.md': 'Installing',
  'docs/guides/migrate-from-e2b.md': 'From E2B',
  'docs/guides/migrate-from-vercel.md': 'From Vercel Sandbox',
  'docs/guides/sandbox-settings.md': 'Settings',
  'docs/guides/commands.md': 'Long-lived commands',
  'docs/guides/files.md': 'Files',
  'docs/guides/streams-and-ports.md': 'Streams and ports',
  'docs/guides/fork-and-hibernate.md': 'Fork and hibernate',
  'docs/guides/network-and-credentials.md': 'Network and credentials',
  'docs/guides/python.md': 'Python client',
  'docs/guides/command-line.md': 'Command line',
  'docs/guides/mcp.md': 'MCP server',
  'docs/guides/events.md': 'Events and webhooks',
  'docs/guides/accounts.md': 'Accounts and keys',
  'docs/guides/operate.md': 'Operating',
  'docs/guides/backup.md': 'Backup',
  'docs/guides/tls-and-proxies.md': 'TLS and proxies',
  'docs/decisions/README.md': 'All decisions',
  'examples/README.md': 'All examples',
};

const PATHS: Readonly<Record<string, string>> = {
  'README.md': 'quick-start',
  'ARCHITECTURE.md': 'architecture',
  'CONTRIBUTING.md': 'contributing',
  'CHANGELOG.md': 'changelog',
  'packages/sdk/README.md': 'reference/typescript-client',
  'docs/decisions/README.md': 'decisions',
};

/** Lists all sources in the order of the navigation. Throws if two have the same path. */
export function listSources(repository: string): Source[] {
  const named = GROUPS.flatMap(({ section, title, files }) =>
    files
      .filter((file) => existsSync(join(repository, file)))
      .map((file) => buildSource(file, section, title)),
  );
  const known = new Set(named.map(({ file }) => file));
  const others = FOLDERS.flatMap(({ folder, section, group }) =>
    listPages(join(repository, folder))
      .map((name) => `${folder}/${name}`)
      .filter((file) => !known.has(file))
      .map((file) => buildSource(file, section, group)),
  );
  const sources = [...named, ...others];
  const files = new Map<string, string>();
  for (const { file, path } of sources) {
    const other = files.get(path);
    if (other !== undefined) throw new Error(`${file} and ${other} have the same path ${path}`);
    files.set(path, file);
  }
  return sources;
}

function listPages(directory: string): string[] {
  return readdirSync(directory)
    .filter((name) => name.endsWith('.md'))
    .sort();
}

function buildSource(file: string, section: Section, group: string): Source {
  return { file, path: pathOf(file), section, group, shortTitle: SHORT_TITLES[file] };
}

function pathOf(file: string): string {
  if (file.startsWith('examples/')) return `guides/${posix.dirname(file)}`;
  const path = file.startsWith('docs/') ? file.slice('docs/'.length) : basename(file);
  return PATHS[file] ?? path.slice(0, -'.md'.length);
}
