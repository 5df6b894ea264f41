import { useLocation } from 'preact-iso';
import { isOwner } from '../service/session.ts';
import { Icon } from '../ui/Icon.tsx';
import { SECTION_GROUPS } from './sections.ts';

export function Navigation() {
  const { path } = useLocation();
  return (
    <nav class="navigation" aria-label="Main">
      {SECTION_GROUPS.map(({ label, sections }) => (
        <div key={label} class="nav-group">
          <h2>{label}</h2>
          {sections
            .filter(({ isOwnerOnly = false }) => !isOwnerOnly || isOwner.value)
            .map(({ label: text, href, icon }) => (
              <a
                key={href}
                href={href}
                aria-current={path === href || path.startsWith(`${href}/`) ? 'page' : undefined}
              >
                <Icon name={icon} />
                {text}
              </a>
            ))}
        </div>
      ))}
      <div class="nav-foot">
        <a href="/docs" target="_blank" rel="noreferrer">
          <Icon name="file" />
          Documentation
        </a>
      </div>
    </nav>
  );
}
