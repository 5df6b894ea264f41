import type { IconName } from '../ui/Icon.tsx';

interface Section {
  label: string;
  href: string;
  icon: IconName;
  /** Words that quick actions also find it by. */
  words?: string;
  /** Only for people who operate the service. */
  isOperatorOnly?: boolean;
}

export interface SectionGroup {
  label: string;
  sections: readonly Section[];
}

/** The navigation, in its order. */
const SECTION_GROUPS: readonly SectionGroup[] = [
  {
    label: 'Run',
    sections: [
      { label: 'Sandboxes', href: '/sandboxes', icon: 'terminal', words: 'virtual machines list' },
      { label: 'Snapshots', href: '/snapshots', icon: 'snapshot', words: 'restore' },
      { label: 'Disks', href: '/disks', icon: 'disk', words: 'volumes storage' },
      { label: 'Images', href: '/images', icon: 'layers', words: 'builds dockerfile registries' },
    ],
  },
  {
    label: 'Control',
    sections: [
      { label: 'Network', href: '/network', icon: 'network', words: 'policy egress profiles' },
      { label: 'Secrets', href: '/secrets', icon: 'lock', words: 'credentials' },
      { label: 'Webhooks', href: '/webhooks', icon: 'hook', words: 'events deliveries' },
      { label: 'Audit log', href: '/audit', icon: 'log', words: 'verify chain' },
    ],
  },
  {
    label: 'Organization',
    sections: [
      { label: 'Usage', href: '/usage', icon: 'chart', words: 'cost billing statement credit' },
      { label: 'API keys', href: '/keys', icon: 'key', words: 'tokens team secret' },
      { label: 'People', href: '/people', icon: 'people', words: 'members teams invitations' },
      {
        label: 'Operator',
        href: '/operator',
        icon: 'server',
        words: 'host capacity health limits credit organizations',
        isOperatorOnly: true,
      },
    ],
  },
];

/** Returns the navigation of the signed-in person. */
export function listSections(isOperator: boolean): SectionGroup[] {
  return SECTION_GROUPS.map(({ label, sections }) => ({
    label,
    sections: sections.filter(({ isOperatorOnly = false }) => !isOperatorOnly || isOperator),
  }));
}
