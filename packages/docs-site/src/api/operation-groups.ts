/** Groups of operations, as the navigation shows them. The first pattern that fits the path decides. */
import type { Operation } from './openapi-document.ts';

const GROUPS: readonly (readonly [title: string, path: RegExp])[] = [
  [
    'Copies and snapshots',
    /^\/v1\/(?:snapshots|runs\/(?:restore|\{id\}\/(?:fork|hibernate|resume|rollback|snapshot|tree)))/u,
  ],
  ['Commands', /^\/v1\/runs\/\{id\}\/commands/u],
  ['Execution and terminals', /^\/v1\/runs\/\{id\}\/(?:exec|shell|terminal|ssh|tickets)/u],
  ['Files', /^\/v1\/runs\/\{id\}\/files/u],
  ['Ports and previews', /^\/v1\/runs\/\{id\}\/(?:proxy|ports|previews)/u],
  ['Network and credentials', /^\/v1\/(?:network-profiles|runs\/\{id\}\/(?:network|credentials))/u],
  [
    'Audit and usage',
    /^\/v1\/(?:usage|statements|budgets|organization\/audit|runs\/(?:history|\{id\}\/(?:audit|metrics)))/u,
  ],
  ['Sandboxes', /^\/v1\/runs(?:\/\{id\})?$/u],
  ['Events and webhooks', /^\/v1\/(?:events|webhooks)/u],
  ['Secrets', /^\/v1\/secrets/u],
  ['Disks', /^\/v1\/disks/u],
  ['Images and registries', /^\/v1\/(?:images|registries)/u],
  ['Account', /^\/account\/(?!organizations)/u],
  ['Organizations and teams', /^\/account\/organizations/u],
  ['Service', /^\/(?:openapi\.json|healthz)$/u],
];
const OTHERS = 'Other';
const ORDER = [
  'Sandboxes',
  'Execution and terminals',
  'Commands',
  'Files',
  'Copies and snapshots',
  'Disks',
  'Ports and previews',
  'Network and credentials',
  'Secrets',
  'Audit and usage',
  'Events and webhooks',
  'Images and registries',
  'Account',
  'Organizations and teams',
  OTHERS,
  'Service',
];

export interface OperationGroup {
  title: string;
  operations: Operation[];
}

/** Divides the operations into groups. None is left out: one that no pattern fits is in the group "Other". */
export function groupOperations(operations: readonly Operation[]): OperationGroup[] {
  const titleOf = ({ path }: Operation): string =>
    GROUPS.find(([, pattern]) => pattern.test(path))?.[0] ?? OTHERS;
  return ORDER.map((title) => ({
    title,
    operations: operations.filter((operation) => titleOf(operation) === title),
  })).filter((group) => group.operations.length > 0);
}
