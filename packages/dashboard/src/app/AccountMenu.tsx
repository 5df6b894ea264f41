import { useLocation } from 'preact-iso';
import { account, signOut } from '../service/session.ts';
import { Menu } from '../ui/Menu.tsx';
import { showFailure } from '../ui/toasts.tsx';
import { chooseTheme, theme, type Theme } from '../service/theme.ts';

const THEMES: readonly (readonly [Theme, string, 'sun' | 'moon' | 'settings'])[] = [
  ['light', 'Light theme', 'sun'],
  ['dark', 'Dark theme', 'moon'],
  ['system', 'Theme of the system', 'settings'],
];

export function AccountMenu() {
  const { route } = useLocation();
  const name = account.value?.user.name ?? '';
  return (
    <Menu
      label={`Account of ${name}`}
      button={<span class="avatar">{name.slice(0, 1).toUpperCase()}</span>}
      items={[
        { label: 'Your account', icon: 'settings', onSelect: () => route('/settings') },
        ...THEMES.map(([id, label, icon]) => ({
          label,
          icon: theme.value === id ? ('check' as const) : icon,
          onSelect: () => chooseTheme(id),
        })),
        { label: 'Sign out', icon: 'logout', onSelect: () => void signOut().catch(showFailure) },
      ]}
    />
  );
}
