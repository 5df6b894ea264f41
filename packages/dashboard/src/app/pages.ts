/** First parts of the paths of all pages. The service answers each of them, and all paths below, with the dashboard. */
export const PAGES = [
  'sign-in',
  'sign-up',
  'sandboxes',
  'history',
  'snapshots',
  'disks',
  'images',
  'network',
  'secrets',
  'audit',
  'usage',
  'webhooks',
  'keys',
  'people',
  'settings',
  'operator',
] as const;
