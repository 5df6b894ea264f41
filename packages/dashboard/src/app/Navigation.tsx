import { useLocation } from 'preact-iso';
import { isOperator } from '../service/session.ts';
import { Icon } from '../ui/Icon.tsx';
import { listSections } from './sections.ts';

export function Navigation() {
  const { path } = useLocation();
  return (
    <nav class="navigation" aria-label="Main">
      {listSections(isOperator.value).map(({ label, sections }) => (
        <div key={label} class="nav-group">
          <h2>{label}</h2>
          {sections.map(({ label: text, href, icon }) => (
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
