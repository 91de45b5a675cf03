// Light, dark, or as the system has it. Loaded before anything is drawn, so that nothing flashes.
(() => {
  const THEMES = ["auto", "light", "dark"];
  const kept = () => {
    try {
      return localStorage.getItem("theme");
    } catch {
      return null; // a browser may forbid it
    }
  };
  const set = (theme) => {
    document.documentElement.dataset.theme = theme;
    try {
      localStorage.setItem("theme", theme);
    } catch {
      // it holds until the page is left
    }
  };
  document.documentElement.dataset.theme = THEMES.includes(kept()) ? kept() : "auto";
  window.theme = { all: THEMES, get: () => document.documentElement.dataset.theme, set };
})();
