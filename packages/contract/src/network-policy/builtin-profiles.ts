/** The profiles that every server has. They do not name the hosts of package registries: set-up finds those. */
import type { NetworkProfileEntry } from './network-schemas.ts';

/** Hosts of GitHub: pages and git, API, archive downloads, and files of repositories and releases. */
const CODE_HOST = ['github.com', 'api.github.com', 'codeload.github.com', '*.githubusercontent.com'];

/** Profiles that the operator's file cannot replace, because their names state what they do. */
export const FIXED_PROFILES: ReadonlySet<string> = new Set(['unrestricted', 'locked-down']);

export const BUILTIN_PROFILES: readonly NetworkProfileEntry[] = [
  {
    name: 'unrestricted',
    description: 'Everything except private networks and the host. This is the default.',
    allow: ['0.0.0.0/0'],
    deny: [],
  },
  { name: 'locked-down', description: 'Nothing.', allow: [], deny: ['0.0.0.0/0'] },
  {
    name: 'claude-code',
    description:
      'For coding agents: the API of Anthropic, GitHub, and the registries of PyPI, npm and crates.',
    allow: ['api.anthropic.com', ...CODE_HOST, 'registry:pypi', 'registry:npm', 'registry:crates'],
    deny: [],
  },
  {
    name: 'openai',
    description: 'The API of OpenAI, GitHub, and the registries of PyPI and npm.',
    allow: ['api.openai.com', ...CODE_HOST, 'registry:pypi', 'registry:npm'],
    deny: [],
  },
  {
    name: 'packages',
    description: 'The registries of PyPI, npm and crates, nothing else.',
    allow: ['registry:pypi', 'registry:npm', 'registry:crates'],
    deny: [],
  },
];
